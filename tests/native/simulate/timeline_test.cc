// What the simulator keeps: events in the order of their times, messages in the order of their arrival.
#include "simulate/timeline.h"

#include <algorithm>
#include <random>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "native/harness/harness.h"
#include "simulate/connections.h"

namespace hvd::test::simulate_timeline {
namespace {

using simulate::Connections;
using simulate::Mailroom;
using simulate::Message;
using simulate::Timeline;

TEST(events_come_by_time_and_then_by_number) {
  constexpr size_t kLanes = 7;
  std::mt19937 rng(1);
  Timeline<int> timeline(kLanes);
  std::vector<double> last(kLanes, 0);
  std::vector<std::tuple<double, int, size_t>> posted;
  for (int i = 0; i < 1000; ++i) {
    const size_t lane = rng() % kLanes;
    last[lane] += rng() % 3;  // equal times occur, in a lane and across lanes
    timeline.Post(lane, last[lane], i);
    posted.emplace_back(last[lane], i, lane);
  }
  std::sort(posted.begin(), posted.end());
  for (const auto& [at, what, lane] : posted) {
    EXPECT(!timeline.empty());
    if (timeline.empty()) return;
    const auto event = timeline.Take();
    EXPECT(event.at == at && event.what == what && event.lane == lane);
  }
  EXPECT(timeline.empty());
}

TEST(a_lane_refuses_an_event_before_its_last_one) {
  Timeline<int> timeline(2);
  timeline.Post(0, 2.0, 1);
  timeline.Post(1, 1.0, 2);
  bool refused = false;
  try {
    timeline.Post(0, 1.5, 3);
  } catch (const std::logic_error&) {
    refused = true;
  }
  EXPECT(refused);
  EXPECT_EQ(timeline.Take().what, 2);
}

TEST(messages_of_many_queues_keep_their_order) {
  Mailroom room;
  std::vector<Mailroom::Queue> queues(3);
  for (uint32_t round = 0; round < 2; ++round) {  // in the second one places are used again
    for (uint32_t i = 0; i < 30; ++i) room.Put(&queues[i % 3], {0, 0, round, i, 0});
    for (uint32_t i = 0; i < 30; ++i) {
      const auto message = room.Take(&queues[i % 3]);
      EXPECT(message && message->step == round && message->segment == i);
    }
    for (Mailroom::Queue& queue : queues) EXPECT(!room.Take(&queue));
  }
}

TEST(connections_are_found_again_when_the_table_has_grown) {
  Connections connections;
  for (int i = 0; i < 1024; ++i) connections.With(16 * i + 3).unacknowledged = static_cast<uint32_t>(i);
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(connections.With(16 * i + 3).unacknowledged, static_cast<uint32_t>(i));
  EXPECT_EQ(connections.across(), 0);
  for (const int peer : {3, 19, 3}) connections.CountAcross(&connections.With(peer));
  EXPECT_EQ(connections.across(), 2);
}

}  // namespace
}  // namespace hvd::test::simulate_timeline
