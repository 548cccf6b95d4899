// Spread: ranks that share cores, spread evenly over them. The kernel puts a thread where there is room when it wakes.
// With three of four ranks on one of two cores it then leaves them there for tenths of a second: ranks that give their
// core away every few microseconds never sleep, and look too warm in its caches to be moved. Meanwhile all wait for the
// fullest core, twice as long as they need to. So each rank says in its arena on which core it runs, looks now and then
// where the others are, and goes over to an emptier core when it has seen one again and again.
// Used by the holder of the driver role only.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/wake/cores.h"
#include "transport/neighbours.h"

namespace hvd::engine {

// Pure. on[i]: the core that rank i runs on. The core to which rank `me` should go: of those it may run on the one with
// the fewest ranks, if these are at least two fewer than on its own, and if it is the last rank there (only one of them
// is to go). -1: it stays.
int BetterCore(const std::vector<int>& on, int me, const CoreSet& allowed);

// When to act upon what the looks show. A look may catch the ranks on their way, and what keeps them together may be
// somebody else's work on the other core, which the kernel knows of and this does not: then going over is undone soon.
// Pure.
class SpreadPatience {
 public:
  static constexpr int kInARow = 4;  // looks that show a better core before the rank goes there
  static constexpr int kShortestPause = 8, kLongestPause = 1024;  // looks; twice as long after each move
  static constexpr int kCalm = 64;                                // looks without one, then the next pause is short

  // False: in a pause, there is nothing to look for.
  bool Looks() {
    if (pause_ == 0) return true;
    --pause_;
    return false;
  }
  // What the look showed. True: go now.
  bool Saw(bool better) {
    in_a_row_ = better == better_ ? in_a_row_ + 1 : 1;
    better_ = better;
    if (!better && in_a_row_ == kCalm) next_pause_ = kShortestPause;
    if (!better || in_a_row_ < kInARow) return false;
    in_a_row_ = 0;
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
    return true;
  }

 private:
  bool better_ = false;
  int in_a_row_ = 0, pause_ = 0, next_pause_ = kShortestPause;
};

class Spread {
 public:
  explicit Spread(transport::Neighbours* neighbours) : n_(neighbours), on_(n_->size(), -1) {}

  // In a thread that is about to wait for the other ranks.
  void BeforeWait();
  static constexpr int kWaitsPerLook = 8;
  static constexpr int kLooksPerQuestion = 64;  // to the kernel, on which cores this thread may run

 private:
  int Better(int core);

  transport::Neighbours* n_;
  std::vector<int> on_;  // which core each rank runs on, as far as is known
  CoreSet allowed_;
  int waits_ = 0, looks_ = 0;
  SpreadPatience patience_;
};

}  // namespace hvd::engine
