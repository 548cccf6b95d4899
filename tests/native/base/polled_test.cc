#include "base/polled.h"

#include <cmath>

#include "native/harness/harness.h"

namespace hvd::test::base_polled {
namespace {

TEST(polled_pauses_double_and_have_a_limit) {
  EXPECT_EQ(PauseAfter(0, 1e-3), 0.0);
  EXPECT_EQ(PauseAfter(0.999e-3, 1e-3), 0.0);
  EXPECT(PauseAfter(1e-3, 1e-3) > 0);
  double waited = 1e-3, before = 0;
  for (int i = 0; i < 40; ++i) {
    const double pause = PauseAfter(waited, 1e-3);
    EXPECT(pause >= before && pause <= 200e-6);
    before = pause;
    waited += pause;
  }
  EXPECT_EQ(before, 200e-6);
}

Task Waits(const bool* ready, bool polled) {
  const auto fn = [ready] { return *ready; };
  if (polled) {
    co_await Polled(fn, 0);
  } else {
    co_await Until(fn);
  }
  co_return Status();
}

TEST(polled_task_says_when_to_look_again_and_others_never) {
  for (const bool polled : {false, true}) {
    bool ready = false;
    Runner runner(Waits(&ready, polled));
    runner.Advance();
    EXPECT_EQ(std::isfinite(runner.LookAgainInS()), polled);
    ready = true;
    EXPECT(runner.Advance());
    EXPECT(runner.done());
  }
}

}  // namespace
}  // namespace hvd::test::base_polled
