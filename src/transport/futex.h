// A 32-bit word in shared memory that threads of several processes sleep on (futex(2)).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace hvd::transport {

// The half that a futex can be about: the one that changes with every small number.
inline const void* LowHalf(const std::atomic<uint64_t>& word) {
  const auto* halves = reinterpret_cast<const std::byte*>(&word);
  return std::endian::native == std::endian::little ? halves : halves + sizeof(uint32_t);
}

// Sleeps while *word is `value`, until woken, for timeout_s (1e9 or more: no end). False: a signal came.
inline bool SleepOnWord(const void* word, uint32_t value, double timeout_s) {
  timespec limit = {};
  const bool limited = timeout_s < 1e9;
  if (limited) {
    const double seconds = std::max(0.0, timeout_s);
    limit.tv_sec = static_cast<time_t>(seconds);
    limit.tv_nsec = static_cast<long>((seconds - static_cast<double>(limit.tv_sec)) * 1e9);
  }
  const long rc = syscall(SYS_futex, word, FUTEX_WAIT, value, limited ? &limit : nullptr, nullptr, 0);
  return rc == 0 || errno != EINTR;
}

inline void WakeSleepersOn(const void* word, int most) {
  syscall(SYS_futex, word, FUTEX_WAKE, most, nullptr, nullptr, 0);
}

}  // namespace hvd::transport
