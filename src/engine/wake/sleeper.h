// Sleeper: one epoll set over this rank's doorbell, the liveness descriptors of the other ranks and their sockets.
// Sleeping costs nothing: no timer runs unless the caller gives a deadline. A rank has two: one for the background
// thread, one for a waiting thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace hvd::engine {

class Sleeper {
 public:
  enum class Kind : uint32_t { kDoorbell, kLiveness, kSocket, kTimer, kNudge, kSockets };
  static constexpr int kMostEvents = 16;  // of one Wait
  struct Event {
    Kind kind;
    int rank;
  };

  Sleeper() = default;
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  Status Open();
  // Sockets are watched edge-triggered (both directions): their owner reads until nothing is left before it sleeps.
  Status Watch(int fd, Kind kind, int rank);
  void Forget(int fd);
  // Another set, as one descriptor (Kind::kSockets): this one wakes as long as that one has an event to give. Nested,
  // so that all of them can be silenced in one call.
  Status Nest(const Sleeper& other);
  void Silence(const Sleeper& other, bool silent);
  // Waits until something happens, a signal arrives or timeout_s (infinity allowed) is over. False: interrupted by a
  // signal.
  bool Wait(double timeout_s, std::vector<Event>* events);

 private:
  Fd epoll_;
};

}  // namespace hvd::engine
