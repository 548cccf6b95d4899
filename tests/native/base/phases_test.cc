#include "base/phases.h"

#include "native/base/fake_clock.h"

namespace hvd::test::base_phases {
namespace {

int one, other;  // their addresses are streams

std::string Text(const std::vector<Span>& spans) {
  std::ostringstream s;
  for (const Span& span : spans) {
    const char* const where = span.stream == nullptr ? "host" : span.stream == &one ? "one" : "other";
    s << span.name << " on " << where << " " << span.begin_s << " to " << span.end_s << "; ";
  }
  return s.str();
}

TEST(phases_lie_between_marks_of_their_stream) {
  EXPECT_EQ(Text(SpansBetween({})), "");
  EXPECT_EQ(Text(SpansBetween({{"A", &one, 1}})), "");
  EXPECT_EQ(Text(SpansBetween({{"A", &one, 1}, {"B", &one, 2}, {"", &one, 4}})), "A on one 1 to 2; B on one 2 to 4; ");
  EXPECT_EQ(Text(SpansBetween({{"A", &one, 1}, {"", &one, 2}, {"B", &one, 5}, {"", &one, 6}})),
            "A on one 1 to 2; B on one 5 to 6; ");
  // Streams and the host do what they do side by side.
  EXPECT_EQ(
      Text(SpansBetween(
          {{"A", &one, 1}, {"B", &other, 2}, {"C", nullptr, 3}, {"", &one, 4}, {"", nullptr, 5}, {"", &other, 6}})),
      "A on one 1 to 4; C on host 3 to 5; B on other 2 to 6; ");
}

// The clocks of host and device are compared with some error.
TEST(phases_do_not_run_backwards) {
  EXPECT_EQ(Text(SpansBetween({{"Q", &one, 3}, {"A", &one, 2.5}, {"B", &one, 4}, {"", &one, 3.9}})),
            "Q on one 3 to 3; A on one 3 to 4; B on one 4 to 4; ");
}

TEST(phases_are_known_when_their_last_moment_has_come) {
  const auto clock = std::make_shared<FakeClock>();
  Phases phases(clock);
  EXPECT(phases.Ended());
  phases.Queue(&one);
  phases.Begin("A", &one);
  phases.Begin("A", &one);  // it is in it
  phases.End(&one);
  phases.End(&one);
  EXPECT_EQ(clock->recorded(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT(!phases.Ended());
    clock->Come(i, 1e9 + static_cast<double>(i));
  }
  EXPECT(phases.Ended());
  const std::vector<Span> spans = phases.Spans();
  EXPECT_EQ(spans.size(), 3u);
  EXPECT(spans[0].name == "QUEUE" && spans[1].name == "WAIT_FOR_DATA" && spans[2].name == "A");
  EXPECT(spans[0].end_s == 1e9 && spans[1].end_s == 1e9 + 1 && spans[2].end_s == 1e9 + 2);
}

TEST(phases_that_the_device_does_not_tell_are_none) {
  const auto clock = std::make_shared<FakeClock>();
  Phases fails(clock), unknown(clock);
  fails.Begin("A", &one);
  clock->fails = true;
  fails.End(&one);
  fails.Begin("B", &one);
  clock->fails = false;
  clock->Come(0, 1);
  EXPECT(fails.Ended() && fails.Spans().empty());
  unknown.Begin("A", &one);
  unknown.End(&one);
  clock->Come(1, 1);
  clock->Come(2, -1);  // which it does not tell
  EXPECT(unknown.Ended() && unknown.Spans().empty());
}

}  // namespace
}  // namespace hvd::test::base_phases
