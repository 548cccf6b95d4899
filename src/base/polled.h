// Polled: for what must be asked again and again because nothing wakes this rank when it is ready, such as a library
// that has no descriptor to sleep on. The driver's loop asks how long it may sleep before it looks again; without a
// task that awaits one it sleeps as ever.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/task.h"

namespace hvd {

// How long to sleep after so much waiting: not at all for as long as the answer is likely at any moment, then as long
// as has been waited since, which doubles, up to 200 us.
inline double PauseAfter(double waited_s, double lively_s) {
  constexpr double kShortest = 10e-6, kLongest = 200e-6;
  return waited_s < lively_s ? 0 : std::clamp(waited_s - lively_s, kShortest, kLongest);
}

// co_await Polled(fn, lively_s): suspends until fn() is true. fn may do work, and is called by the driver, often.
template <class Fn>
class Polled final : public Condition {
 public:
  Polled(Fn fn, double lively_s) : fn_(std::move(fn)), lively_s_(lively_s) {}
  bool Ready() override { return fn_(); }
  double LookAgainInS() const override {
    return PauseAfter(std::chrono::duration<double>(Clock::now() - began_).count(), lively_s_);
  }
  bool await_ready() { return fn_(); }
  void await_suspend(Task::Handle h) {
    began_ = Clock::now();
    SuspendOn(h, this);
  }
  void await_resume() {}

 private:
  using Clock = std::chrono::steady_clock;

  Fn fn_;
  const double lively_s_;
  Clock::time_point began_;
};

}  // namespace hvd
