// Express: all ranks of a one-host job find out, without the negotiation, that they call the same small operation at
// the same moment (docs/design/0005-express.md).
//
// Every rank stores what it brings, with a fingerprint of the whole request, into a buffer of its own and then adds
// itself to one word that all share. The word decides: once it holds everybody, the operation happens on all ranks;
// until then a rank can take itself out again and go the long way, and so must the others. Nobody waits longer than
// kPatience (express.cc). Used by the holder of the driver role only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/express/wait_chooser.h"
#include "transport/neighbours.h"

namespace hvd::engine {

class Express {
 public:
  static constexpr size_t kMostBytes = transport::kArenaExpressBytes - sizeof(uint64_t);  // that a rank can bring
  static constexpr int kMostRanks = 8;

  // The ranks of the job are the neighbours. Where they share cores, who waits gives its core away.
  explicit Express(transport::Neighbours* neighbours) : n_(neighbours) {}

  // Where this rank stores what it brings to the next Meet; 8 bytes into a cache line.
  std::byte* mine() const { return buffer(n_->self(), round_) + sizeof(uint64_t); }
  // True: all ranks have come with this fingerprint, of everything that they must agree on; what they brought stays
  // where it is until this rank has met the others once more. False, on all ranks: the request goes the long way.
  // Cost: one atomic operation of each rank on one cache line, one line read from each other rank; so the time grows
  // with the number of ranks, and a tree is better beyond a handful.
  // bytes: about what this rank brings; how ranks that share cores wait is chosen for small and large apart.
  bool Meet(uint64_t fingerprint, size_t bytes);
  // How long the last Meet has waited; 0: no longer than it takes to look at a clock.
  double waited_s() const { return waited_s_; }
  // After a Meet that was true: what a rank brought to it.
  const std::byte* of(int local) const { return buffer(local, static_cast<uint16_t>(round_ - 1)) + sizeof(uint64_t); }
  // A request that had to go the long way is done: who comes next must not take the mark of this rank for a new one.
  void Forget();

 private:
  struct Word;
  bool Come(uint32_t ident);
  bool Await(int yields);
  int Yields(size_t bytes);
  void Sleep(uint32_t seen, double timeout_s);
  bool Leave();
  void WakeSleepers();
  bool AllAgree(uint64_t fingerprint) const;
  std::atomic<uint64_t>& word() const { return n_->arena(0).words().express; }
  std::byte* buffer(int local, uint16_t round) const { return n_->arena(local).express(round % 2); }

  transport::Neighbours* n_;
  uint16_t round_ = 1;  // of the operation to come; equal on all ranks
  double waited_s_ = 0;
  bool marked_ = false;  // this rank has left a request, and may still be in the word as one who has
  // Of the first rank, which decides for all of them: two ways at once would be a third one.
  WaitChooser choosers_[2];  // of small and of large meetings
  int measured_ = -1;        // whose meeting was the last
  double met_at_us_ = 0;     // when it began
};

}  // namespace hvd::engine
