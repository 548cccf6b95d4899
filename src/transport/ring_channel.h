// RingChannel: a Channel through two single-producer single-consumer byte rings in shared memory, one in each rank's
// arena. The doorbell announces new bytes and new room. See arena.h for the layout.
#pragma once

#include "transport/channel.h"
#include "transport/neighbours.h"

namespace hvd::transport {

class RingChannel final : public Channel {
 public:
  RingChannel(Neighbours* neighbours, int local, RingKind kind);
  Result<size_t> Write(std::span<const std::byte> bytes) override;
  Result<size_t> Read(std::span<std::byte> bytes) override;
  int peer() const override { return n_->rank(local_); }
  const char* kind() const override { return "shm"; }
  // Bytes written that the peer has not read.
  uint64_t unread() const;
  // Bytes that the peer wrote and this side has not read.
  bool readable() const;

 private:
  Neighbours* n_;
  int local_;
  RingKind ring_;
  size_t capacity_;
  bool committed_ = false;
  uint64_t written_ = 0, consumed_ = 0;  // own copies of the cursors this rank owns
};

}  // namespace hvd::transport
