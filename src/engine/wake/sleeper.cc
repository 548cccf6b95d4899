#include "engine/wake/sleeper.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "base/limits.h"

namespace hvd::engine {

Status Sleeper::Open() {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  return epoll_.valid() ? Status() : SystemFailure("cannot watch descriptors", errno);
}

Status Sleeper::Watch(int fd, Kind kind, int rank) {
  epoll_event event = {};
  event.events = kind == Kind::kSocket ? EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET : EPOLLIN;
  event.data.u64 = (static_cast<uint64_t>(kind) << 32) | static_cast<uint32_t>(rank);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return Status();
  return SystemFailure("cannot watch descriptor " + std::to_string(fd) + " of rank " + std::to_string(rank), errno);
}

void Sleeper::Forget(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

Status Sleeper::Nest(const Sleeper& other) { return Watch(other.epoll_.get(), Kind::kSockets, 0); }

void Sleeper::Silence(const Sleeper& other, bool silent) {
  epoll_event event = {};
  if (!silent) event.events = EPOLLIN;
  event.data.u64 = static_cast<uint64_t>(Kind::kSockets) << 32;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, other.epoll_.get(), &event);
}

bool Sleeper::Wait(double timeout_s, std::vector<Event>* events) {
  events->clear();
  int timeout_ms = -1;
  if (timeout_s > 0 && timeout_s < 1e-3) {  // epoll_wait knows milliseconds only
    pollfd all = {epoll_.get(), POLLIN, 0};
    const timespec pause = {0, static_cast<long>(timeout_s * 1e9)};
    if (ppoll(&all, 1, &pause, nullptr) < 0) return errno != EINTR;
    timeout_ms = 0;
  } else if (std::isfinite(timeout_s)) {
    timeout_ms = static_cast<int>(std::ceil(std::clamp(timeout_s, 0.0, 1e6) * 1e3));
  }
  epoll_event ready[kMostEvents];
  const int n = epoll_wait(epoll_.get(), ready, kMostEvents, timeout_ms);
  for (int i = 0; i < n; ++i) {
    events->push_back({static_cast<Kind>(ready[i].data.u64 >> 32), static_cast<int>(ready[i].data.u64 & 0xffffffff)});
  }
  return n >= 0 || errno != EINTR;
}

}  // namespace hvd::engine
