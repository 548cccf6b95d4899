// The steady clock, in seconds.
#pragma once

#include <chrono>

namespace hvd {

inline double MonotonicS() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace hvd
