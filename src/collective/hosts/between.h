// Between: the part of a two-level collective that travels between the hosts, one plan at a time, while the members of
// a host work for one another; Pipelined: the order of the two.
#pragma once

#include <array>
#include <memory>

#include "base/task.h"
#include "collective/batch.h"
#include "collective/channels/plan_run.h"

namespace hvd::collective::hosts {

class Between {
 public:
  Between(const Group& group, Batch& batch) : group_(group), batch_(batch) {}

  // `team` outlives the plan. Nothing may be under way.
  void Start(const channels::Team& team, channels::PlanRun::Work work) {
    work.seq = batch_.seq;
    work.round = rounds_[static_cast<int>(work.phase)]++;
    run_ = std::make_unique<channels::PlanRun>(team, std::move(work), &group_.scratch, &batch_.waiting_for);
    Pump();
  }
  // Moves what can be moved now. A failure is kept for status() and Finish().
  void Pump() {
    if (run_ == nullptr || !status_.ok()) return;
    size_t moved = 0;
    status_ = run_->Advance(&moved);
  }
  const Status& status() const { return status_; }
  // co_await: Status. At once when nothing is under way.
  Task Finish() {
    HVD_CO_TRY(status_);
    if (run_ == nullptr) co_return Status();
    HVD_CO_TRY(co_await run_->Finish());
    run_.reset();
    co_return Status();
  }

 private:
  const Group& group_;
  Batch& batch_;
  std::unique_ptr<channels::PlanRun> run_;
  std::array<uint32_t, 8> rounds_ = {};  // by phase
  Status status_;
};

// Slice b is prepared inside the hosts while slice b-1 travels between them, and handed on while slice b+1 travels.
// Prepare and HandOn are tasks, the same ones in the same order on all members of a host, and wait for nothing but one
// another; Start begins what goes between the hosts, at the owners. So no wait inside a host depends on the network but
// Finish(), and the earliest unfinished phase can always go on.
template <class Work>
Task Pipelined(Work& work, size_t slices, Between& between) {
  for (size_t b = 0; b <= slices; ++b) {
    if (b < slices) HVD_CO_TRY(co_await work.Prepare(b));
    HVD_CO_TRY(co_await between.Finish());
    if (b < slices) work.Start(b);
    if (b > 0) HVD_CO_TRY(co_await work.HandOn(b - 1));
  }
  co_return Status();
}

}  // namespace hvd::collective::hosts
