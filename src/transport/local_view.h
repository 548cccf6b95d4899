// LocalView: what the members of one group that share a host do together through shared memory. Each rank owns one
// *arena* (arena.h) that all its neighbours map; a rank stores only into its own arena (one writer per word), but for
// what arena.h excepts.
//
// One progress word per rank, for all process sets: (batch sequence number << 24) | step. A rank executes batches in
// log order, so the word only rises, and waiting for "member m has reached step s of this batch" never needs per-set
// state. It wraps around after 2^40 numbers, which comparisons allow for, as long as no member of a batch has taken
// part in none of the 2^39 numbers before it (three weeks at 100,000 batches a second, of three numbers each). A rank
// that gives up says so in a second word beside it, the first batch that it gave up, and never raises the first one
// again: waiters fail instead of waiting on.
//
// Used by the holder of the driver role only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "base/task.h"
#include "transport/neighbours.h"

namespace hvd::transport {

class LocalView {
 public:
  // `locals`: the host-local indices of the members, ascending by rank; `index`: this rank's place among them.
  LocalView(Neighbours* neighbours, std::vector<int> locals, int index)
      : n_(neighbours), locals_(std::move(locals)), index_(index) {}

  int size() const { return static_cast<int>(locals_.size()); }
  int index() const { return index_; }
  int rank_of(int member) const { return n_->rank(locals_[member]); }

  // ---- a batch: Begin, any number of steps, Finish. Steps start at 1 and rise.
  void Begin(uint64_t seq) { seq_ = seq; }
  // Release-stores the step of this batch (everything written before is visible to a rank that sees it) and rings those
  // that sleep on it.
  void Publish(uint32_t step) { n_->Publish((seq_ << kStepBits) | step); }
  // This rank reads and writes nothing of the others any more in this batch.
  void Finish() { Publish(kFinalStep); }
  // co_await: Status. Fails when the member abandoned this batch.
  auto Reached(int member, uint32_t step) { return Wait{this, member, member + 1, (seq_ << kStepBits) | step, {}}; }
  auto AllReached(uint32_t step) { return Wait{this, 0, size(), (seq_ << kStepBits) | step, {}}; }
  // Ok unless a member has given up this batch. To be asked after reads of a member's own memory (a resident tensor),
  // and before anything that says they are good: a rank that gives up takes that memory away, and reads then give zero.
  Status NobodyGaveUp() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the reads come before the look
    for (const int local : locals_) {
      const uint64_t failed = n_->failed_seq(local);
      if (local != n_->self() && failed != 0 && seq_ >= failed) return n_->Abandoned(local);
    }
    return Status();
  }

  // ---- own buffers. Before a batch first stores into one: co_await Acquire (waits until the readers of the last batch
  // that used it have finished that batch). Inside a batch the algorithm's own steps protect re-use.
  static constexpr int kSmallBuffers = 2, kStages = kArenaStages;
  enum class Buffer { kSmall, kStage };
  auto Acquire(Buffer kind, int which) {
    Neighbours::LastUse& use = n_->last_use(kind == Buffer::kSmall ? which : kSmallBuffers + which);
    Neighbours::LastUse before = use;
    use.locals = locals_;
    use.until = (seq_ << kStepBits) | kFinalStep;
    return WaitFree{n_, std::move(before)};
  }
  std::byte* small(int member, int which) const { return n_->arena(locals_[member]).small(which); }
  std::byte* stage(int member, int which) const { return n_->arena(locals_[member]).stage(which); }
  static constexpr size_t small_bytes() { return kArenaSmallBytes; }
  static constexpr size_t stage_bytes() { return kArenaStageBytes; }

  // ---- resident tensors: memory of an arena that hvd_shared_alloc handed out.
  // Offset of [data, data + bytes) in this rank's resident heap, if it lies there.
  std::optional<uint64_t> ResidentOffset(const void* data, size_t bytes) const {
    return n_->ResidentOffset(data, bytes);
  }
  std::byte* Resident(int member, uint64_t offset, size_t bytes) const {
    return n_->Resident(locals_[member], offset, bytes);
  }

  // ---- results that others store into; null: there is no memory for them.
  const std::shared_ptr<ResultHeap>& results() const { return n_->results(); }
  // As ResidentOffset.
  std::optional<uint64_t> ResultOffset(const std::byte* data) const { return n_->ResultOffset(data); }
  std::byte* Result(int member, uint64_t offset, size_t bytes) const {
    return n_->Resident(locals_[member], offset, bytes);
  }

  Neighbours& neighbours() { return *n_; }

  static constexpr int kStepBits = 24;
  static constexpr uint32_t kFinalStep = (1u << kStepBits) - 1;

 private:
  static bool Passed(uint64_t progress, uint64_t want) { return static_cast<int64_t>(progress - want) >= 0; }
  struct Wait final : Condition {
    Wait(LocalView* v, int from, int to, uint64_t value, Status s)
        : view(v), next(from), end(to), want(value), status(std::move(s)) {}
    LocalView* view;
    int next, end;
    uint64_t want;
    Status status;
    bool Ready() override {
      for (; next < end; ++next) {
        const int local = view->locals_[next];
        if (next == view->index_) continue;
        const bool passed = Passed(view->n_->progress(local), want);
        if (const uint64_t failed = view->n_->failed_seq(local); failed != 0 && view->seq_ >= failed) {
          status = view->n_->Abandoned(local);
          return true;
        }
        if (!passed) {
          view->n_->NoteWaitingFor(local);
          return false;
        }
      }
      return true;
    }
    bool await_ready() {
      return view->n_->Spin([this] { return Ready(); });
    }
    void await_suspend(Task::Handle h) { SuspendOn(h, this); }
    Status await_resume() { return std::move(status); }
  };
  struct WaitFree final : Condition {
    WaitFree(Neighbours* n, Neighbours::LastUse u) : neighbours(n), use(std::move(u)) {}
    Neighbours* neighbours;
    Neighbours::LastUse use;
    size_t next = 0;
    bool Ready() override {
      for (; next < use.locals.size(); ++next) {
        const int local = use.locals[next];
        // A rank that has given up no longer reads.
        if (local != neighbours->self() && !Passed(neighbours->progress(local), use.until) &&
            neighbours->failed_seq(local) == 0 && !neighbours->lost(local)) {
          neighbours->NoteWaitingFor(local);
          return false;
        }
      }
      return true;
    }
    bool await_ready() { return Ready(); }
    void await_suspend(Task::Handle h) { SuspendOn(h, this); }
    void await_resume() {}
  };

  Neighbours* n_;
  std::vector<int> locals_;
  int index_;
  uint64_t seq_ = 0;
};

}  // namespace hvd::transport
