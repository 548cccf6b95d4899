// RingChannel: the same contract as the other channels, and control words that make no sense.
#include "transport/ring_channel.h"

#include "native/collective/shm/world.h"

namespace hvd::test::transport_ring_channel {
namespace {

using namespace hvd::transport;

TEST(ring_delivers_what_was_written_before_the_death_then_names_the_peer) {
  ShmWorld world(2);
  RingChannel a(&world.rank(0), 1, RingKind::kControl), b(&world.rank(1), 0, RingKind::kControl);
  const Bytes sent = RandomElements(DType::kUint8, 5, 1);
  EXPECT_EQ(*a.Write(sent), sent.size());
  world.rank(1).MarkLost(0, Status(Code::kPeerLost, "rank 0 died"));
  Bytes got(9);
  EXPECT_EQ(*b.Read(std::span(got).first(3)), size_t{3});
  EXPECT_EQ(*b.Read(std::span(got).subspan(3)), size_t{2});
  got.resize(sent.size());
  EXPECT(got == sent);
  EXPECT_EQ(b.Read(got).status().message(), "rank 0 died");
  EXPECT_EQ(b.Write(got).status().message(), "rank 0 died");
}

TEST(ring_takes_what_fits_and_wraps) {
  ShmWorld world(2);
  RingChannel a(&world.rank(0), 1, RingKind::kControl), b(&world.rank(1), 0, RingKind::kControl);
  const Bytes sent = RandomElements(DType::kUint8, kControlRingBytes + 10, 2);
  EXPECT_EQ(*a.Write(sent), kControlRingBytes);
  EXPECT_EQ(*a.Write(std::span(sent).subspan(kControlRingBytes)), size_t{0});
  Bytes got(sent.size());
  EXPECT_EQ(*b.Read(std::span(got).first(4)), size_t{4});
  EXPECT_EQ(*a.Write(std::span(sent).subspan(kControlRingBytes)), size_t{4});
  EXPECT_EQ(*b.Read(std::span(got).subspan(4)), kControlRingBytes);
  EXPECT_EQ(*a.Write(std::span(sent).subspan(kControlRingBytes + 4)), size_t{6});
  EXPECT_EQ(*b.Read(std::span(got).subspan(kControlRingBytes + 4)), size_t{6});
  EXPECT(got == sent && !b.readable() && a.unread() == 0);
}

TEST(ring_refuses_damaged_words) {
  ShmWorld world(2);
  RingChannel a(&world.rank(0), 1, RingKind::kControl), b(&world.rank(1), 0, RingKind::kControl);
  Bytes bytes(8);
  EXPECT_EQ(*a.Write(bytes), bytes.size());
  world.rank(0).own().ring_words(RingKind::kControl, 1).written.store(kControlRingBytes + 1);
  EXPECT_EQ(b.Read(bytes).status().message(), "the control words of rank 0 are damaged.");
  world.rank(1).own().ring_words(RingKind::kControl, 0).consumed.store(bytes.size() + 1);  // more than was written
  EXPECT_EQ(a.Write(bytes).status().message(), "the control words of rank 1 are damaged.");
}

}  // namespace
}  // namespace hvd::test::transport_ring_channel
