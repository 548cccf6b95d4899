// WaitChooser: times both ways of waiting, goes the faster one, and looks again.
#include "engine/express/wait_chooser.h"

#include "native/harness/harness.h"

namespace hvd::test::engine_wait_chooser {
namespace {

using namespace hvd::engine;
using Way = WaitChooser::Way;
constexpr int kTimed = WaitChooser::kTimed;
constexpr int kFirst = WaitChooser::kShortestPause + 2 * kTimed;  // meetings until the first choice
constexpr int kLongest = WaitChooser::kLongestPause + 2 * kTimed;

// So many meetings on a machine where they take so long; returns how many of them yielded.
int Play(WaitChooser& chooser, int meetings, double sleeping_us, double yielding_us) {
  int yielding = 0;
  for (int i = 0; i < meetings; ++i) {
    const bool yields = chooser.way() == Way::kYield;
    yielding += yields;
    chooser.Took(yields ? yielding_us : sleeping_us);
  }
  return yielding;
}

// A chooser that has found yielding faster.
WaitChooser Yielding() {
  WaitChooser chooser;
  Play(chooser, kFirst, 57, 15);
  return chooser;
}

TEST(wait_chooser_tries_both_then_waits_the_faster_way) {
  WaitChooser yields, sleeps;
  EXPECT_EQ(Play(yields, kFirst, 57, 15), kTimed);
  EXPECT_EQ(Play(yields, 100, 57, 15), 100);
  EXPECT_EQ(Play(sleeps, kFirst, 77, 110), kTimed);
  EXPECT_EQ(Play(sleeps, 100, 77, 110), 0);
}

TEST(wait_chooser_stays_when_in_doubt) {
  WaitChooser sleeps, yields = Yielding();
  Play(sleeps, 2 * kLongest, 100, 96);
  EXPECT(sleeps.way() == Way::kSleep);
  Play(yields, 2 * kLongest, 96, 100);
  EXPECT(yields.way() == Way::kYield);
}

TEST(wait_chooser_changes_its_mind) {
  WaitChooser chooser = Yielding();
  Play(chooser, 4 * kLongest, 57, 15);
  Play(chooser, kLongest, 15, 57);
  EXPECT(chooser.way() == Way::kSleep);
  WaitChooser wrong = Yielding();  // a new choice is looked at again soon
  Play(wrong, kFirst, 15, 57);
  EXPECT(wrong.way() == Way::kSleep);
}

TEST(wait_chooser_pays_little_for_looking) {  // one way is four times slower than the other
  WaitChooser chooser = Yielding();
  Play(chooser, 4 * kLongest, 60, 15);
  const int sleeping = kLongest - Play(chooser, kLongest, 60, 15);
  EXPECT(sleeping > 0 && sleeping * (60 - 15) < 0.02 * kLongest * 15);
}

TEST(wait_chooser_some_long_meetings_do_not_sway_it) {
  for (int disturbed = 0; disturbed < kFirst; ++disturbed) {
    WaitChooser chooser;
    for (int i = 0; i < kFirst; ++i) {
      chooser.Took(i == disturbed || i == disturbed + 20 ? 5000 : chooser.way() == Way::kYield ? 15 : 57);
    }
    EXPECT(chooser.way() == Way::kYield);
  }
}

// A way that is fast most of the time and slow now and then is as slow as that makes it.
TEST(wait_chooser_judges_by_blocks) {
  WaitChooser chooser;
  for (int i = 0; i < kFirst; ++i) chooser.Took(chooser.way() == Way::kSleep ? 30 : i % 4 == 0 ? 150 : 10);
  EXPECT(chooser.way() == Way::kSleep);
}

}  // namespace
}  // namespace hvd::test::engine_wait_chooser
