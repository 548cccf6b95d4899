// The steady clock, in seconds.
#pragma once

#include <ctime>

#include "base/monotonic.h"

namespace hvd::engine {

inline double NowS() { return MonotonicS(); }

// The time of the negotiation's events.
class Stamp {
 public:
  // exact: the negotiation counts milliseconds.
  explicit Stamp(bool exact) : exact_(exact) {}
  void set_exact(bool exact) { exact_ = exact; }
  // For deadlines of many seconds the coarse clock will do, at a fifth of the price.
  double operator()() const {
    if (exact_) return NowS();
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

 private:
  bool exact_;
};

}  // namespace hvd::engine
