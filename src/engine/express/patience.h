// Patience: how a rank waits for others that are about to come, between two looks, and when it gives up. Ranks that run
// in step come within a few microseconds, or when it is their turn on a core. A rank that is later than that is not
// worth waiting for here, because the long way costs about as much.
#pragma once

#include <sched.h>

#include <chrono>

#include "transport/neighbours.h"

namespace hvd::engine {

class Patience {
 public:
  // Of ranks that share cores: how often a core is given to the next thread, in case that is the awaited one, before
  // this rank sleeps. Which of the two is better is measured (wait_chooser.h).
  static constexpr int kFewYields = 4, kManyYields = 256;

  // yields: 0: this rank has a core of its own.
  explicit Patience(int yields) : yields_(yields) {}

  // After a look without success. False: it has been long enough. sleep(timeout_s) returns after something has changed,
  // or earlier; it is only called where ranks share cores.
  template <class Sleep>
  bool Again(Sleep sleep) {
    ++looks_;
    // A thread that gave its core away may have lost it for long.
    if (crowded() ? looks_ >= kLooksPerClock : looks_ % kLooksPerClock == 0) {
      last_ = Clock::now();
      if (looks_ == kLooksPerClock) began_ = last_;
      if (last_ - began_ >= limit()) return false;
    }
    if (!crowded() || looks_ <= kCrowdedLooks) {
      transport::Neighbours::Pause();
    } else if (looks_ <= kCrowdedLooks + yields_) {
      sched_yield();
    } else {
      sleep(std::chrono::duration<double>(began_ + limit() - last_).count());
    }
    return true;
  }

  // How long it took, at the end; 0: no longer than it takes to look at a clock. The last look is near enough, unless
  // the core was given away.
  double waited_s() const {
    if (looks_ < kLooksPerClock) return 0;
    return std::chrono::duration<double>((crowded() ? Clock::now() : last_) - began_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kAlone = std::chrono::microseconds(10), kCrowded = std::chrono::microseconds(100);
  static constexpr int kLooksPerClock = 8;
  static constexpr int kCrowdedLooks = 4;  // before the core is given away
  static_assert(kCrowdedLooks + kFewYields >= kLooksPerClock, "the clock runs before anybody sleeps");

  bool crowded() const { return yields_ > 0; }
  Clock::duration limit() const { return crowded() ? kCrowded : kAlone; }

  const int yields_;
  int looks_ = 0;
  Clock::time_point began_{}, last_{};
};

}  // namespace hvd::engine
