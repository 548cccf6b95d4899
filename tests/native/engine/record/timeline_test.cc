// Timelines of devices: what is shown, when, and that the file is whole at every moment. tests/integration/gpu reads
// them with a reader of JSON.
#include "engine/record/timeline.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/monotonic.h"
#include "native/base/fake_clock.h"

namespace hvd::test::engine_timeline {
namespace {

using engine::DeviceRows;
using engine::Followed;
using engine::Timeline;

int one, other;  // their addresses are streams

// A phase A of `tensors` on a stream: two moments of the clock.
Followed Batch(const std::shared_ptr<FakeClock>& clock, std::vector<std::string> tensors, void* stream = &one) {
  auto phases = std::make_shared<Phases>(clock);
  phases->Begin("A", stream);
  phases->End(stream);
  return {std::move(tensors), std::move(phases)};
}

std::string Text(const std::vector<DeviceRows::Shown>& shown) {
  std::ostringstream s;
  for (const auto& one : shown) {
    s << one.tensor << " row " << one.row << (one.row_name.empty() ? "" : " (" + one.row_name + ")") << ": "
      << one.span.name << " " << one.span.begin_s << " to " << one.span.end_s << "; ";
  }
  return s.str();
}

TEST(device_rows_show_what_has_ended) {
  const auto clock = std::make_shared<FakeClock>();
  DeviceRows rows;
  rows.Add(Batch(clock, {"x", "y"}));
  rows.Add(Batch(clock, {"x"}, &other));
  rows.Add(Batch(clock, {"x"}));
  EXPECT_EQ(Text(rows.TakeEnded()), "");
  EXPECT_EQ(clock->compared, 0);
  clock->Come(2, 3);
  clock->Come(3, 5);
  EXPECT_EQ(Text(rows.TakeEnded()), "x row 2 (GPU stream 1): A 3 to 5; ");
  for (size_t i : {0, 1, 4, 5}) clock->Come(i, static_cast<double>(i) + 1);
  EXPECT_EQ(Text(rows.TakeEnded()),
            "x row 3 (GPU stream 2): A 1 to 2; y row 3 (GPU stream 2): A 1 to 2; x row 3: A 5 to 6; ");
  EXPECT(rows.empty());
  EXPECT_EQ(clock->compared, 2);
}

// In the queue of its stream a batch may wait from before the one ahead of it is done.
TEST(device_rows_hold_one_thing_at_a_time) {
  const auto clock = std::make_shared<FakeClock>();
  DeviceRows rows(2);
  for (int i = 0; i < 3; ++i) rows.Add(Batch(clock, {"x"}));
  clock->Come(0, 1);  // before the trace
  clock->Come(1, 3);
  clock->Come(2, 4);
  clock->Come(3, 7);
  clock->Come(4, 5);
  clock->Come(5, 6.5);
  EXPECT_EQ(Text(rows.TakeEnded()), "x row 2 (GPU stream 1): A 4 to 7; x row 2: A 7 to 7; ");
}

TEST(device_rows_are_shared_by_tensors_without_a_name) {
  const auto clock = std::make_shared<FakeClock>();
  DeviceRows rows;
  rows.Add(Batch(clock, {"allreduce.noname.1", "x", "allreduce.noname.2"}));
  rows.Add(Batch(clock, {"allreduce.noname.3"}));
  for (size_t i = 0; i < 4; ++i) clock->Come(i, static_cast<double>(i) + 1);
  EXPECT_EQ(Text(rows.TakeEnded()),
            "x row 2 (GPU stream 1): A 1 to 2; unnamed row 2 (GPU stream 1): A 1 to 2; unnamed row 2: A 3 to 4; ");
}

TEST(device_rows_ask_again_while_the_clock_cannot_be_compared) {
  const auto clock = std::make_shared<FakeClock>();
  DeviceRows rows;
  rows.Add(Batch(clock, {"x"}));
  clock->Come(0, 1);
  clock->Come(1, 2);
  clock->fails = true;
  EXPECT(rows.TakeEnded().empty() && !rows.empty());
  clock->fails = false;
  EXPECT_EQ(rows.TakeEnded().size(), 1u);
  EXPECT(rows.empty());
}

class WrittenTrace {
 public:
  WrittenTrace() {
    const int made = mkstemp(path_);
    EXPECT(made >= 0);
    close(made);
  }
  ~WrittenTrace() { unlink(path_); }
  const char* path() const { return path_; }
  std::string Read() const {
    std::stringstream s;
    s << std::ifstream(path_).rdbuf();
    return s.str();
  }
  bool Whole() const {
    const std::string text = Read();
    return text.size() > 4 && text[0] == '[' && text.compare(text.size() - 2, 2, "]\n") == 0;
  }
  // Whether the text comes to stand there.
  bool Gets(const std::string& text) const {
    for (const double until = MonotonicS() + 20; MonotonicS() < until; std::this_thread::yield()) {
      EXPECT(Whole() || Whole());  // a look may meet a write half-way
      if (Read().find(text) != std::string::npos) return true;
    }
    return false;
  }

 private:
  char path_[32] = "/tmp/hvd_trace_XXXXXX";
};

Timeline::Plan OfRankZero(const WrittenTrace& file) {
  Timeline::Plan plan;
  plan.path = file.path();
  return plan;
}

std::shared_ptr<const negotiation::Request> Named(const std::string& name) {
  auto request = std::make_shared<negotiation::Request>();
  request->name = name;
  return request;
}

const char kRow[] = ",\"tid\":2,\"args\":{\"name\":\"GPU stream 1\"}}";
const char kPhase[] = ",\"name\":\"A\",\"dur\":250}";

// Phase A of 250 us, in a trace that is being written.
Followed Running(const std::shared_ptr<FakeClock>& clock, Timeline* timeline) {
  timeline->Submitted("x", 0, "ALLREDUCE");
  return Batch(clock, {"x"});
}
void End(const std::shared_ptr<FakeClock>& clock) {
  const double begin = (std::floor(MonotonicS() * 1e6) + 0.3) * 1e-6;  // a trace has whole microseconds
  clock->Come(clock->recorded() - 2, begin);
  clock->Come(clock->recorded() - 1, begin + 250e-6);
}

TEST(timeline_shows_phases_when_they_have_been) {
  const WrittenTrace file;
  const auto clock = std::make_shared<FakeClock>();
  Timeline timeline;
  EXPECT_OK(timeline.Start(OfRankZero(file)));
  timeline.Follow(Running(clock, &timeline));
  timeline.Agreed({Named("x")});
  EXPECT(file.Gets("\"ph\":\"E\""));
  EXPECT(file.Read().find("tid\":2") == std::string::npos);
  End(clock);
  EXPECT(file.Gets(kPhase));  // nothing but time has to pass
  EXPECT(file.Gets(kRow));
  EXPECT_OK(timeline.Stop());
  EXPECT(file.Whole());
}

TEST(timeline_that_stops_shows_what_ends_soon_and_drops_the_rest) {
  const WrittenTrace first, second;
  const auto clock = std::make_shared<FakeClock>();
  Timeline timeline;
  EXPECT_OK(timeline.Start(OfRankZero(first)));
  Followed never = Running(std::make_shared<FakeClock>(), &timeline);
  const std::weak_ptr<Phases> dropped = never.phases;
  timeline.Follow(std::move(never));
  timeline.Follow(Running(clock, &timeline));
  std::thread device([&] {
    while (timeline.active()) std::this_thread::yield();
    End(clock);
  });
  const double begin = MonotonicS();
  EXPECT_OK(timeline.Stop());
  EXPECT(MonotonicS() - begin < 10);
  device.join();
  EXPECT(first.Read().find(kPhase) != std::string::npos && first.Whole());
  EXPECT(dropped.expired());
  // What comes too late, and what had begun before the next trace, is not shown there.
  Followed late = Batch(clock, {"x"});
  End(clock);
  timeline.Follow(late);
  EXPECT_OK(timeline.Start(OfRankZero(second)));
  timeline.Follow(std::move(late));
  timeline.Follow(Running(clock, &timeline));
  End(clock);
  timeline.Agreed({Named("x")});
  EXPECT(second.Gets(kPhase));
  EXPECT_OK(timeline.Stop());
  const std::string text = second.Read();
  EXPECT_EQ(text.find(kPhase), text.rfind(kPhase));
  EXPECT(second.Whole());
}

}  // namespace
}  // namespace hvd::test::engine_timeline
