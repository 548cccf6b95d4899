#include "engine/sleeper.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace hvd {

Sleeper::~Sleeper() {
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

Status Sleeper::Open() {
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ >= 0) return Status();
  return Status(Code::kInternal, std::string("epoll_create1: ") + std::strerror(errno));
}

Status Sleeper::Watch(int fd, Kind kind, int rank) {
  epoll_event event = {};
  event.events = kind == Kind::kSocket ? EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET : EPOLLIN;
  event.data.u64 = (static_cast<uint64_t>(kind) << 32) | static_cast<uint32_t>(rank);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return Status();
  return Status(Code::kInternal, "cannot watch descriptor " + std::to_string(fd) + " of rank " + std::to_string(rank) +
                                     ": " + std::strerror(errno));
}

void Sleeper::Forget(int fd) { epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr); }

bool Sleeper::Wait(double timeout_s, std::vector<Event>* events) {
  events->clear();
  int timeout_ms = -1;
  if (std::isfinite(timeout_s)) timeout_ms = static_cast<int>(std::ceil(std::clamp(timeout_s, 0.0, 1e6) * 1e3));
  epoll_event ready[16];
  const int n = epoll_wait(epoll_fd_, ready, 16, timeout_ms);
  for (int i = 0; i < n; ++i) {
    events->push_back({static_cast<Kind>(ready[i].data.u64 >> 32), static_cast<int>(ready[i].data.u64 & 0xffffffff)});
  }
  return n >= 0 || errno != EINTR;
}

}  // namespace hvd
