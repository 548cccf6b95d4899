// Express: all ranks of a one-host job find out, without the negotiation, that they call the same small operation at
// the same moment (docs/design/0005-express.md).
//
// Every rank stores what it brings, with a fingerprint of the whole request, into a buffer of its own, and then comes
// to a meeting (meeting.h). If all come, the operation happens on all ranks; a rank that has waited too long
// (patience.h) leaves, and all go the long way. Used by the holder of the driver role only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/express/meeting.h"
#include "engine/express/wait_chooser.h"
#include "transport/neighbours.h"

namespace hvd::engine {

class Express {
 public:
  // In front of what a rank brings: a word of the meeting, and the fingerprint.
  static constexpr size_t kHeadBytes = 2 * sizeof(uint64_t);
  static constexpr size_t kMostBytes = transport::kArenaExpressBytes - kHeadBytes;  // that a rank can bring
  static constexpr int kMostRanks = 8;

  // The ranks of the job are the neighbours; null: this one is alone. Where they share cores, a rank that waits gives
  // its core away.
  explicit Express(transport::Neighbours* neighbours);

  // Where this rank stores what it brings to the next Meet; kHeadBytes into a cache line.
  std::byte* mine() const { return buffer(self(), round_) + kHeadBytes; }
  // True: all ranks have come with this fingerprint, of everything that they must agree on; what they brought stays
  // where it is until this rank has met the others once more. False, on all ranks: the request goes the long way.
  // Cost: two ranks: one line each way, at the same time. More: one atomic operation of each rank on one cache line,
  // one line read from each other rank; so the time grows with the number of ranks, and a tree is better for many.
  //
  // bytes: about what this rank brings; how ranks that share cores wait is chosen for small and large apart.
  bool Meet(uint64_t fingerprint, size_t bytes);
  // How long the last Meet has waited; 0: no longer than it takes to look at a clock.
  double waited_s() const { return waited_s_; }
  // After a Meet that was true: what a rank brought to it.
  const std::byte* of(int local) const { return buffer(local, round_ - 1) + kHeadBytes; }
  // A request that had to go the long way is done: who comes next must not take the mark of this rank for a new one.
  void Forget() {
    if (meeting_ != nullptr) meeting_->Forget();
  }

 private:
  int Yields(size_t bytes);
  bool AllAgree(uint64_t fingerprint) const;
  int self() const { return n_ == nullptr ? 0 : n_->self(); }
  std::byte* buffer(int local, uint64_t round) const {
    return n_ == nullptr ? alone_.get() : n_->arena(local).express(static_cast<int>(round % 2));
  }

  transport::Neighbours* const n_;
  const std::unique_ptr<Meeting> meeting_;    // null: alone
  const std::unique_ptr<std::byte[]> alone_;  // the buffer then
  uint64_t round_ = 1;                        // of the operation to come; equal on all ranks
  double waited_s_ = 0;
  // Of the first rank, which decides for all of them: two ways at once would be a third one.
  WaitChooser choosers_[2];  // of small and of large meetings
  int measured_ = -1;        // whose meeting was the last
  double met_at_us_ = 0;     // when it began
};

}  // namespace hvd::engine
