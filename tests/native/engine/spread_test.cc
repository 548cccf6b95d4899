// Spread: ranks that share cores go over to an emptier one, and only when it is worth it.
#include "engine/wake/spread.h"

#include <sched.h>

#include "native/collective/shm/world.h"
#include "native/harness/harness.h"

namespace hvd::test::engine_spread {
namespace {

using namespace hvd::engine;

const CoreSet kBoth({0, 1});

TEST(spread_the_last_rank_of_the_fullest_core_goes) {
  const std::vector<int> on({0, 1, 0, 0});
  EXPECT_EQ(BetterCore(on, 0, kBoth), -1);
  EXPECT_EQ(BetterCore(on, 1, kBoth), -1);
  EXPECT_EQ(BetterCore(on, 2, kBoth), -1);
  EXPECT_EQ(BetterCore(on, 3, kBoth), 1);
}

TEST(spread_a_difference_of_one_stays) {
  for (const std::vector<int>& on :
       {std::vector<int>({0, 1, 0}), std::vector<int>({0, 1, 1, 0}), std::vector<int>({0})})
    for (int me = 0; me < static_cast<int>(on.size()); ++me) EXPECT_EQ(BetterCore(on, me, kBoth), -1);
}

TEST(spread_goes_only_where_the_rank_may_run) {
  const std::vector<int> on({0, 0, 0, 7});
  EXPECT_EQ(BetterCore(on, 2, {0}), -1);
  EXPECT_EQ(BetterCore(on, 2, {}), -1);
  EXPECT_EQ(BetterCore(on, 2, {0, 7}), 7);
  EXPECT_EQ(BetterCore(on, 2, {0, 5, 7}), 5);  // nobody is there
}

// How many of the looks end in a move, when each shows a better core.
int Moves(SpreadPatience& patience, int looks) {
  int moves = 0;
  for (int i = 0; i < looks; ++i) moves += patience.Looks() && patience.Saw(true);
  return moves;
}

TEST(spread_a_single_look_is_not_enough) {
  SpreadPatience patience;
  for (int i = 0; i < 100; ++i) EXPECT(!patience.Saw(i % SpreadPatience::kInARow != 0));
  EXPECT_EQ(Moves(patience, SpreadPatience::kInARow), 1);
}

TEST(spread_moves_for_nothing_become_rare) {
  SpreadPatience patience;
  const int looks = 20 * SpreadPatience::kLongestPause;
  const int moves = Moves(patience, looks);
  EXPECT(moves >= 20 && moves < 30);
  EXPECT(Moves(patience, looks) <= 20);
}

TEST(spread_a_calm_time_makes_it_quick_again) {
  SpreadPatience patience;
  Moves(patience, 4 * SpreadPatience::kLongestPause);
  for (int calm = 0; calm < SpreadPatience::kCalm;) calm += patience.Looks() && !patience.Saw(false);
  EXPECT_EQ(Moves(patience, SpreadPatience::kInARow), 1);
  EXPECT_EQ(Moves(patience, SpreadPatience::kShortestPause + SpreadPatience::kInARow), 1);
}

TEST(spread_leaves_a_bound_thread_alone) {
  RanksAsThreads(1, [](int) {
    const CoreSet before = CoresOfThread();
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(before.front(), &only);
    EXPECT_EQ(sched_setaffinity(0, sizeof only, &only), 0);
    MoveThread(before.back());
    EXPECT_EQ(sched_getcpu(), before.front());
    EXPECT(CoresOfThread() == CoreSet({before.front()}));
  });
}

TEST(spread_moves_a_thread_and_lets_it_go) {
  RanksAsThreads(1, [](int) {
    const CoreSet before = CoresOfThread();
    for (const int core : before) {
      MoveThread(core);
      EXPECT(CoresOfThread() == before);
    }
    MoveThread(1 << 20);  // no such core
    EXPECT(CoresOfThread() == before);
  });
}

// Three ranks that say they are on one core, of which only the last is the calling one: it goes over within the looks
// that it needs.
TEST(spread_a_rank_leaves_a_full_core) {
  RanksAsThreads(1, [](int) {
    const CoreSet allowed = CoresOfThread();
    if (allowed.size() < 2) return;
    ShmWorld world(4);
    MoveThread(allowed[0]);
    const int core = sched_getcpu();
    for (int rank = 0; rank < 3; ++rank) world.rank(rank).own().words().core.store(core);
    Spread spread(&world.rank(3));
    bool gone = false;
    for (int i = 0; i < 100 * Spread::kWaitsPerLook && !gone; ++i) {
      spread.BeforeWait();
      gone = sched_getcpu() != core;
    }
    EXPECT(gone);
  });
}

}  // namespace
}  // namespace hvd::test::engine_spread
