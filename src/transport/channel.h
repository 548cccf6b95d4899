// Channel: an ordered byte stream between this rank and one other. Non-blocking; used by the holder of the driver role
// only. Implementations: memory (the verified fake), tcp (a connected socket it is given), ring (bytes through shared
// memory). No address, secret or handshake in here.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace hvd::transport {

class Channel {
 public:
  virtual ~Channel() = default;
  // Takes as many bytes as fit now; 0 = would block. Fails with kPeerLost when the peer closed or died.
  virtual Result<size_t> Write(std::span<const std::byte> bytes) = 0;
  // The same, for who goes on at once with bytes behind these: they may wait for those, to travel in one packet.
  virtual Result<size_t> WriteAhead(std::span<const std::byte> bytes) { return Write(bytes); }
  // Gives as many bytes as are there now; 0 = nothing yet. kPeerLost when the peer closed and all its bytes were read.
  virtual Result<size_t> Read(std::span<std::byte> bytes) = 0;
  // kPeerLost: nothing gets through to the peer's host or back any more. To be asked at least twice a second while
  // bytes are waited for. now: in seconds.
  virtual Status CheckPeer(double /*now*/) { return Status(); }
  // Descriptor to wait on (epoll), or -1 when a doorbell announces new bytes.
  virtual int fd() const { return -1; }
  virtual int peer() const = 0;  // global rank
  // "tcp", "ring", "memory": for messages, as in "[tcp] rank 2 closed the connection ...".
  virtual const char* kind() const = 0;
};

}  // namespace hvd::transport
