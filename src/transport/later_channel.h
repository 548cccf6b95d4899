// LaterChannel: a way to a rank of another host that is opened when somebody first uses it. Until then it takes and
// gives nothing, like a slow connection; the first use is reported, and the opener of connections gives this one its
// own. Used by the holder of the driver role only.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "transport/channel.h"

namespace hvd::transport {

class LaterChannel final : public Channel {
 public:
  // Says that the way to this rank is needed. False: that could not be said now; ask again.
  using Ask = std::function<bool(int peer)>;

  LaterChannel(int peer, Ask ask) : peer_(peer), ask_(std::move(ask)) {}

  Result<size_t> Write(std::span<const std::byte> bytes) override;
  Result<size_t> WriteAhead(std::span<const std::byte> bytes) override {
    return way_ != nullptr ? way_->WriteAhead(bytes) : Wish();
  }
  Result<size_t> Read(std::span<std::byte> bytes) override;
  Status CheckPeer(double now) override { return way_ != nullptr ? way_->CheckPeer(now) : failed_; }
  int fd() const override { return way_ != nullptr ? way_->fd() : -1; }
  int peer() const override { return peer_; }
  const char* kind() const override { return "tcp"; }

  bool open() const { return way_ != nullptr; }
  // Once.
  void Open(std::unique_ptr<Channel> way) { way_ = std::move(way); }
  // It cannot be opened: uses of it fail with this reason.
  void Fail(Status why) { failed_ = std::move(why); }

 private:
  Result<size_t> Wish();

  const int peer_;
  const Ask ask_;
  bool asked_ = false;
  Status failed_;
  std::unique_ptr<Channel> way_;
};

}  // namespace hvd::transport
