// Verdict: has this rank failed, and of what. The first failure counts, and is for good: everything pending and future
// fails with it, and the other ranks are informed. Used by the holder of the driver role only, but for failed().
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>

#include "engine/links/connections.h"
#include "engine/links/watch.h"
#include "engine/record/counters.h"
#include "engine/run/executor.h"
#include "engine/submit/arrivals.h"
#include "negotiation/node.h"

namespace hvd::engine {

class Verdict {
 public:
  // What a failure ends, and whom it tells.
  struct Tools {
    Submissions* submissions;
    backend::Registry* backends;
    Executor* executor;
    negotiation::Node* node;
    Connections* connections;
    const Watch* watch;
    Arrivals* arrivals;
    Counters* counters;
  };
  explicit Verdict(const Tools& tools);

  // Any thread.
  bool failed() const { return failed_; }

  void Fail(const Status& why, bool tell_others) noexcept;
  // The same at the end of a job in good order: what devices still do is let be.
  void End(const Status& why) noexcept;
  // A batch failed on this rank. Where the others know better why, their reason is waited for.
  void GaveUp(const Status& why);
  // A process is gone for good.
  void Lost(const Watch::Death& death, double now);
  // Until when a better reason may come; infinity: none is waited for.
  double deadline() const { return held_until_; }
  void CheckClock(double now) {
    if (now >= held_until_) Fail(Status(held_why_), true);
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  void Stop(const Status& why, bool tell_others, bool in_order) noexcept;
  bool OthersKnowWhy(const Status& why) const;
  void CutOffSharedTensors();
  bool AnyNeighbourLives() const;

  const Tools tools_;
  std::atomic<bool> failed_{false};
  Status held_why_;  // of a batch that failed, while a better reason may come
  double held_until_ = kNever;
  std::unique_ptr<std::byte[]> reserve_;  // given back when the rank fails, to have memory for that
};

}  // namespace hvd::engine
