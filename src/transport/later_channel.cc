#include "transport/later_channel.h"

namespace hvd::transport {

Result<size_t> LaterChannel::Write(std::span<const std::byte> bytes) {
  return way_ != nullptr ? way_->Write(bytes) : Wish();
}

Result<size_t> LaterChannel::Read(std::span<std::byte> bytes) { return way_ != nullptr ? way_->Read(bytes) : Wish(); }

Result<size_t> LaterChannel::Wish() {
  if (!failed_.ok()) return failed_;
  if (!asked_) asked_ = ask_(peer_);
  return size_t{0};
}

}  // namespace hvd::transport
