// Messages that leave before they are expected: read in their turn, found void, set aside by a batch, cut into pieces.
#include "collective/channels/ahead.h"

#include "collective/channels/plan_run.h"
#include "native/collective/channels/world.h"
#include "transport/tcp_channel.h"

namespace hvd::test::collective_channels_ahead {
namespace {

using namespace hvd::collective::channels;
using transport::TcpChannel;

using Ends = std::array<std::unique_ptr<TcpChannel>, 2>;
Ends Connected(Link link) {
  const auto [a, b] = SocketPair(link);
  auto at_a = TcpChannel::Adopt(a, 0, 1, transport::TcpUse::kData, 5);
  auto at_b = TcpChannel::Adopt(b, 1, 0, transport::TcpUse::kData, 5);
  EXPECT_OK(at_a.status());
  EXPECT_OK(at_b.status());
  return {std::move(*at_a), std::move(*at_b)};
}
Bytes Some(size_t bytes, uint64_t seed) { return RandomElements(DType::kUint8, bytes, seed); }

// Both sides go on in turns, as the engines of two ranks do.
Status Received(Ends& ends, uint64_t number, Bytes* to) {
  Runner runner(ReceiveAhead(ends[1].get(), number, *to));
  while (!runner.done()) {
    EXPECT_OK(ends[0]->Flush());
    runner.Advance();
  }
  return runner.result();
}

TEST(ahead_arrives_in_any_size) {
  for (const Link link : {Link::kSocket, Link::kTcp}) {
    Ends ends = Connected(link);
    uint64_t number = 0;
    for (const size_t bytes : {size_t{1}, size_t{100}, size_t{70000}, kMostAheadBytes}) {
      const Bytes sent = Some(bytes, number);
      EXPECT_OK(SendAhead(++number, sent, ends[0].get()));
      Bytes got(bytes);
      EXPECT_OK(Received(ends, number, &got));
      EXPECT(got == sent);
    }
  }
}

TEST(ahead_of_a_lower_number_is_void) {
  Ends ends = Connected(Link::kTcp);
  EXPECT_OK(SendAhead(1, Some(500, 1), ends[0].get()));
  EXPECT_OK(SendAhead(2, Some(60000, 2), ends[0].get()));
  EXPECT_OK(SendAhead(3, Some(2000, 3), ends[0].get()));
  Bytes got(2000);
  EXPECT_OK(Received(ends, 3, &got));
  EXPECT(got == Some(2000, 3));
}

TEST(ahead_refuses_what_it_does_not_expect) {
  Bytes got(10);
  Ends other = Connected(Link::kTcp);
  EXPECT_OK(SendAhead(1, Some(11, 1), other[0].get()));
  EXPECT(Received(other, 1, &got).code() == Code::kInternal);
  Ends later = Connected(Link::kTcp);
  EXPECT_OK(SendAhead(2, Some(10, 1), later[0].get()));
  EXPECT(Received(later, 1, &got).code() == Code::kInternal);
  Ends strange = Connected(Link::kTcp);
  EXPECT_EQ(*strange[0]->Write(Some(100, 1)), size_t{100});
  EXPECT(Received(strange, 1, &got).code() == Code::kInternal);
  Ends large = Connected(Link::kTcp);
  Fields header;
  header.phase = kAheadPhase;
  header.seq = 1;
  header.bytes = kMostAheadBytes + 1;
  EXPECT(BeginAside(header, large[1].get()).code() == Code::kInternal);
}

// A batch finds it in front of its own messages, of more bytes than the batch expects or fewer.
TEST(ahead_is_set_aside_by_a_batch) {
  for (const size_t early : {size_t{1}, size_t{40}, size_t{5000}, size_t{200000}}) {
    for (const size_t bytes : {size_t{8}, size_t{3000}, size_t{100000}}) {
      Ends ends = Connected(Link::kTcp);
      EXPECT_OK(SendAhead(1, Some(20, 1), ends[0].get()));  // void
      EXPECT_OK(SendAhead(2, Some(early, 2), ends[0].get()));
      RanksAsThreads(2, [&](int rank) {
        Team team;
        team.rank = team.index = rank;
        team.channels = {rank == 0 ? nullptr : ends[1].get(), rank == 1 ? nullptr : ends[0].get()};
        team.member = {0, 1};
        const Bytes sent = Some(bytes, 10 + static_cast<uint64_t>(rank));
        Bytes got(bytes), scratch;
        PlanRun::Work work;
        work.input.Add(sent.data(), bytes);
        work.output.Add(got.data(), bytes);
        work.plan = SwapBytes(1 - rank, bytes, bytes);
        work.seq = 7;
        PlanRun run(team, std::move(work), &scratch, nullptr);
        size_t moved = 0;
        while (!run.done()) EXPECT_OK(run.Advance(&moved));
        EXPECT(got == Some(bytes, 10 + static_cast<uint64_t>(1 - rank)));
      });
      Bytes got(early);
      EXPECT_OK(Received(ends, 2, &got));
      EXPECT(got == Some(early, 2));
    }
  }
}

}  // namespace
}  // namespace hvd::test::collective_channels_ahead
