#include "transport/memory_channel.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

namespace hvd::transport {

struct MemoryChannel::Wire {
  struct Buffer {  // a byte ring
    std::vector<std::byte> ring;
    size_t first = 0, used = 0;
  };
  std::mutex mutex;  // guards all below
  Limits limits;
  Buffer from[2];  // written by side 0, by side 1
  bool closed[2] = {false, false};
};

std::pair<std::unique_ptr<MemoryChannel>, std::unique_ptr<MemoryChannel>> MemoryChannel::Pair(int a, int b,
                                                                                              Limits limits) {
  auto wire = std::make_shared<Wire>();
  wire->limits = limits;
  for (Wire::Buffer& buffer : wire->from) buffer.ring.resize(limits.capacity_bytes);
  return {std::unique_ptr<MemoryChannel>(new MemoryChannel(wire, 0, a, b)),
          std::unique_ptr<MemoryChannel>(new MemoryChannel(wire, 1, b, a))};
}

MemoryChannel::~MemoryChannel() { Close(); }

void MemoryChannel::Close() {
  std::lock_guard<std::mutex> lock(wire_->mutex);
  wire_->closed[side_] = true;
}

void MemoryChannel::CloseAfter(uint64_t bytes) { close_after_ = bytes; }

Status MemoryChannel::Lost(const char* doing) const {
  const bool own = wire_->closed[side_];
  return Status(Code::kPeerLost, "[memory] rank " + std::to_string(own ? self_ : peer_) +
                                     " closed the connection while rank " + std::to_string(self_) + " was " + doing +
                                     ".");
}

Result<size_t> MemoryChannel::Write(std::span<const std::byte> bytes) {
  std::lock_guard<std::mutex> lock(wire_->mutex);
  if (close_after_ == 0) wire_->closed[side_] = true;
  if (wire_->closed[0] || wire_->closed[1]) return Lost("sending");
  Wire::Buffer& b = wire_->from[side_];
  const size_t size = b.ring.size();
  const size_t room = std::min<uint64_t>({size - b.used, wire_->limits.call_bytes, close_after_});
  const size_t n = std::min(bytes.size(), room);
  if (n == 0) return size_t{0};
  const size_t at = (b.first + b.used) % size, head = std::min(n, size - at);
  std::memcpy(b.ring.data() + at, bytes.data(), head);
  std::memcpy(b.ring.data(), bytes.data() + head, n - head);
  b.used += n;
  if (close_after_ != std::numeric_limits<uint64_t>::max()) close_after_ -= n;
  return n;
}

Result<size_t> MemoryChannel::Read(std::span<std::byte> bytes) {
  std::lock_guard<std::mutex> lock(wire_->mutex);
  if (wire_->closed[side_]) return Lost("receiving");
  Wire::Buffer& b = wire_->from[1 - side_];
  const size_t n = std::min({bytes.size(), b.used, wire_->limits.call_bytes});
  if (n == 0) {
    if (!bytes.empty() && b.used == 0 && wire_->closed[1 - side_]) return Lost("receiving");
    return size_t{0};
  }
  const size_t size = b.ring.size(), head = std::min(n, size - b.first);
  std::memcpy(bytes.data(), b.ring.data() + b.first, head);
  std::memcpy(bytes.data() + head, b.ring.data(), n - head);
  b.first = (b.first + n) % size;
  b.used -= n;
  return n;
}

}  // namespace hvd::transport
