#include "engine/record/dump_call.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

namespace hvd::engine {
namespace {

constexpr uint64_t kSignal = 1, kStall = uint64_t{1} << 32;

std::atomic<int> descriptor{-1};
std::atomic<pid_t> owner{0};  // a forked child inherits handler and descriptor, and is not a rank
std::mutex making;

void Add(uint64_t count) {
  const int fd = descriptor.load(std::memory_order_acquire);
  if (fd < 0 || owner.load(std::memory_order_relaxed) != getpid()) return;
  const ssize_t written = write(fd, &count, sizeof count);  // it may be full: then enough is waiting there
  (void)written;
}

// Runs in a signal handler: write and getpid are allowed there.
void Handle(int) {
  const int before = errno;
  Add(kSignal);
  errno = before;
}

}  // namespace

int DumpCall::Descriptor() {
  std::lock_guard<std::mutex> lock(making);
  if (owner.load() != getpid()) {
    owner.store(getpid());
    descriptor.store(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), std::memory_order_release);  // the old one is the parent's
  }
  return descriptor.load();
}

void DumpCall::Stalled() { Add(kStall); }

Status DumpCall::OnSignal(int number) {
  struct sigaction now = {};
  if (sigaction(number, nullptr, &now) != 0)
    return {Code::kInvalidArgument, std::to_string(number) + " is not a signal that can be handled."};
  if ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == Handle) return {};
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL)
    return {Code::kUnsupported, "signal " + std::to_string(number) + " is handled by the program, or ignored."};
  struct sigaction own = {};
  own.sa_handler = Handle;
  own.sa_flags = SA_RESTART | SA_ONSTACK;
  if (sigaction(number, &own, nullptr) != 0)
    return {Code::kInvalidArgument,
            "signal " + std::to_string(number) + " cannot be handled: " + std::strerror(errno) + "."};
  return {};
}

}  // namespace hvd::engine
