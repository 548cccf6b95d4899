// MemoryChannel: the verified fake of a Channel. Two ends of a pair of bounded buffers in this process; each end may be
// used by another thread (ranks as threads). Limits make short reads and writes, faults make a peer go away in the
// middle of a message.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "transport/channel.h"

namespace hvd::transport {

class MemoryChannel final : public Channel {
 public:
  struct Limits {
    size_t capacity_bytes = 64 << 10;                        // of each direction
    size_t call_bytes = std::numeric_limits<size_t>::max();  // of one Read or Write
  };
  // The end that rank `a` uses (its peer is `b`), and the other one.
  static std::pair<std::unique_ptr<MemoryChannel>, std::unique_ptr<MemoryChannel>> Pair(int a, int b, Limits limits);
  static std::pair<std::unique_ptr<MemoryChannel>, std::unique_ptr<MemoryChannel>> Pair(int a, int b) {
    return Pair(a, b, Limits());
  }
  // Closes this end.
  ~MemoryChannel() override;

  Result<size_t> Write(std::span<const std::byte> bytes) override;
  Result<size_t> Read(std::span<std::byte> bytes) override;
  int peer() const override { return peer_; }
  const char* kind() const override { return "memory"; }

  // This end is gone: the other one reads what is buffered, then fails; its writes fail at once.
  void Close();
  // Closes this end once it has written this many more bytes.
  void CloseAfter(uint64_t bytes);

 private:
  struct Wire;
  MemoryChannel(std::shared_ptr<Wire> wire, int side, int self, int peer)
      : wire_(std::move(wire)), side_(side), self_(self), peer_(peer) {}
  Status Lost(const char* doing) const;

  std::shared_ptr<Wire> wire_;
  int side_, self_, peer_;
  uint64_t close_after_ = std::numeric_limits<uint64_t>::max();
};

}  // namespace hvd::transport
