// Neighbours: the ranks of this host, seen from one of them: their arenas and doorbells. Below LocalView (one process
// set) and the ring channels. Used by the holder of the driver role only, but for Ring() and the resident heap, which
// are thread-safe.
//
// Sleeping and ringing. A rank about to sleep stores kIdle (nothing to do), kBlocked (in the middle of something) or
// kWaiting (a thread of the user waits) in its bell, looks at its inputs once more, and sleeps on its eventfd or on the
// bell. A publisher first stores its data, then looks at the bells: sequentially consistent operations on both sides,
// so one of the two sees the other. A blocked neighbour is rung at once; an idle one is rung when the publisher is
// about to stop spinning itself (FlushRings): in a loop of blocking calls the neighbour is about to call anyway, and
// waking its background thread would cost both of them a context switch.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transport/arena.h"
#include "transport/heap/resident_heap.h"
#include "transport/heap/result_heap.h"

namespace hvd::transport {

class Neighbours {
 public:
  struct Member {
    int rank = -1;                   // global
    std::shared_ptr<Region> region;  // its arena
    Fd doorbell;                     // eventfd
  };
  // Readers of an own buffer that must have passed `until` before it may be overwritten.
  struct LastUse {
    std::vector<int> locals;
    uint64_t until = 0;
  };

  // `members` by local index, this rank (at `self`) included. Creates the own arena's words.
  static Result<std::unique_ptr<Neighbours>> Create(std::vector<Member> members, int self);

  int self() const { return self_; }
  int size() const { return static_cast<int>(members_.size()); }
  int rank(int local) const { return members_[local].rank; }
  const Arena& arena(int local) const { return arenas_[local]; }
  Arena& own() { return arenas_[self_]; }
  const Arena& own() const { return arenas_[self_]; }

  // ---- progress words
  uint64_t progress(int local) const { return arenas_[local].words().progress.load(std::memory_order_seq_cst); }
  uint64_t failed_seq(int local) const { return arenas_[local].words().failed.load(std::memory_order_acquire); }
  void Publish(uint64_t value);
  // This rank gives up batch `seq` and all later ones: a rank that waits for it fails instead of waiting on.
  void Abandon(uint64_t seq);
  // Something of a batch has moved here. A rank that waits for this one sees it, also when that was between hosts.
  void NoteMove(uint64_t seq) {
    std::atomic<uint64_t>& moves = own().words().moves;
    moves.store(seq << kMoveBits | ((moves.load(std::memory_order_relaxed) + 1) & kMoveMask),
                std::memory_order_relaxed);
  }
  // A number that changes when a rank of this host has moved something of this batch.
  uint64_t Moves(uint64_t seq) const;
  // Why a member abandoned the batch: it died, or failed itself.
  Status Abandoned(int local) const;
  void MarkLost(int local, Status why);
  bool lost(int local) const { return lost_[local].has_value(); }
  LastUse& last_use(int buffer) { return last_use_[buffer]; }

  // ---- the end. A rank that ends in order says so after its last frames: a rank that then sees its process gone finds
  // them, and one that sees it gone without them has nothing to wait for.
  void SetLastWord(LastWord word) {
    if (last_word(self_) < word) own().words().last_word.store(static_cast<uint32_t>(word), std::memory_order_seq_cst);
  }
  LastWord last_word(int local) const {
    return static_cast<LastWord>(arenas_[local].words().last_word.load(std::memory_order_seq_cst));
  }

  // ---- cores
  // Do ranks of this host share cores? One verdict for all of them, so that they wait alike: what each sees may differ
  // (a process in another pid namespace is out of sight). It stands when all have come this far.
  void SayCoresAreShared() { arenas_[0].words().shared_cores.store(1, std::memory_order_relaxed); }
  bool cores_are_shared() const { return arenas_[0].words().shared_cores.load(std::memory_order_relaxed) != 0; }

  // ---- waiting
  // For reports: the neighbour that the current wait is for.
  void NoteWaitingFor(int local) { waiting_for_ = local; }
  int waiting_for() const { return waiting_for_; }
  // Calls ready() up to `spins` times; set by the driver: many for a waiting thread with a core of its own, none when
  // ranks share cores.
  void set_inline_spins(int spins) { inline_spins_ = spins; }
  template <class F>
  bool Spin(F ready) {
    for (int i = inline_spins_;; --i) {
      if (ready()) return true;
      if (i <= 0) return false;
      Pause();
    }
  }
  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  // ---- bells
  void SetBell(BellState state) { own().words().bell.store(static_cast<uint32_t>(state), std::memory_order_seq_cst); }
  // Something was published for `local`.
  void Notify(int local);
  // The same, but leaves an idle neighbour alone (it cannot be waiting for this).
  void NotifyBlocked(int local);
  void NotifyAll();
  // Rings the idle neighbours noted by Notify.
  void FlushRings();
  // Only this one, if it was noted.
  void FlushRing(int local);
  bool has_pending_rings() const { return any_pending_; }
  // Forgets the notes about neighbours for whom has_read(local) holds.
  template <class F>
  void DropPendingRings(F has_read) {
    any_pending_ = false;
    for (int i = 0; i < size(); ++i) {
      if (pending_ring_[i] && has_read(i)) pending_ring_[i] = false;
      any_pending_ |= pending_ring_[i];
    }
  }
  // Wakes this rank's own sleeping thread. Thread-safe.
  void RingSelf() { Ring(self_); }
  // With the bell at kWaiting: sleeps until rung, for timeout_s (infinity allowed), or until a signal (false).
  bool SleepOnBell(double timeout_s);

  // ---- resident tensors
  std::optional<uint64_t> ResidentOffset(const void* data, size_t bytes) const {
    return heap_ ? heap_->OffsetOf(data, bytes) : std::nullopt;
  }
  std::byte* Resident(int local, uint64_t offset, size_t bytes) const;
  const std::shared_ptr<ResidentHeap>& heap() const { return heap_; }
  // The part of the heap for results; null: there is none, on no rank.
  const std::shared_ptr<ResultHeap>& results() const { return results_; }
  // Of a piece of it, from the beginning of the heap; nothing: it is none.
  std::optional<uint64_t> ResultOffset(const std::byte* data) const {
    const std::optional<size_t> offset = results_ ? results_->OffsetInRegion(data) : std::nullopt;
    return offset ? std::optional<uint64_t>(*offset - arenas_[self_].heap_offset()) : std::nullopt;
  }

 private:
  static constexpr int kMoveBits = 24;
  static constexpr uint64_t kMoveMask = (uint64_t{1} << kMoveBits) - 1;

  Neighbours(std::vector<Member> members, int self);
  void Ring(int local);

  std::vector<Member> members_;
  std::vector<Arena> arenas_;
  int self_;
  std::vector<std::optional<Status>> lost_;
  std::vector<LastUse> last_use_;
  std::vector<bool> pending_ring_;
  bool any_pending_ = false;
  int inline_spins_ = 0;
  int waiting_for_ = -1;
  std::shared_ptr<ResidentHeap> heap_;
  std::shared_ptr<ResultHeap> results_;
};

}  // namespace hvd::transport
