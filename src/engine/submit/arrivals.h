// Arrivals: tells completions how their tensors ended, wakes the threads that wait for them, and keeps the callbacks
// that are due once the role is put down. Used by the holder of the driver role only.
#pragma once

#include <memory>
#include <utility>

#include "engine/submit/completion.h"
#include "engine/submit/role.h"

namespace hvd::engine {

class Arrivals {
 public:
  explicit Arrivals(Role* role) : role_(role) {}

  // One tensor of it has ended.
  void Arrive(Completion& completion, Status status) {
    if (completion.Arrive(std::move(status), &due_)) role_->WakeWaiters();
  }
  // The same for what the submissions have given away: should memory run out in here, TakeInterrupted knows it.
  void ArriveTaken(std::shared_ptr<Completion> completion, Status status) {
    taken_ = std::move(completion);
    Arrive(*taken_, std::move(status));
    taken_.reset();
  }
  // Null: nothing was interrupted.
  std::shared_ptr<Completion> TakeInterrupted() { return std::move(taken_); }

  bool any_due() const { return !due_.empty(); }
  Completion::Due TakeDue() { return std::exchange(due_, {}); }

 private:
  Role* const role_;
  Completion::Due due_;
  std::shared_ptr<Completion> taken_;
};

}  // namespace hvd::engine
