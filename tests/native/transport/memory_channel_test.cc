// MemoryChannel, the verified fake: the same contract as the real ones, and its limits and faults.
#include "native/collective/channels/world.h"

namespace hvd::test::transport_memory_channel {
namespace {

using namespace hvd::transport;

TEST(memory_limits_make_short_reads_and_writes) {
  auto [a, b] = MemoryChannel::Pair(0, 1, {10, 4});
  const Bytes sent = RandomElements(DType::kUint8, 25, 3);
  EXPECT_EQ(*a->Write(sent), size_t{4});
  EXPECT_EQ(*a->Write(std::span(sent).subspan(4)), size_t{4});
  EXPECT_EQ(*a->Write(std::span(sent).subspan(8)), size_t{2});
  EXPECT_EQ(*a->Write(std::span(sent).subspan(10)), size_t{0});
  Bytes got(25);
  EXPECT_EQ(*b->Read(got), size_t{4});
  EXPECT_EQ(*a->Write(std::span(sent).subspan(10)), size_t{4});  // wraps
  size_t n = 4, at = 14;
  while (n < 25) {
    at += *a->Write(std::span(sent).subspan(at));
    n += *b->Read(std::span(got).subspan(n));
  }
  EXPECT(got == sent);
  EXPECT_EQ(*b->Read(got), size_t{0});
}

TEST(memory_close_delivers_the_rest_then_names_the_peer) {
  auto [a, b] = MemoryChannel::Pair(0, 1);
  EXPECT_EQ(*b->Write(Bytes(3)), size_t{3});
  b->Close();
  Bytes got(5);
  EXPECT(a->Write(got).status().code() == Code::kPeerLost);
  EXPECT_EQ(*a->Read(got), size_t{3});
  const Status gone = a->Read(got).status();
  EXPECT(gone.code() == Code::kPeerLost);
  EXPECT_EQ(gone.message(), "[memory] rank 1 closed the connection while rank 0 was receiving.");
  EXPECT(b->Read(got).status().code() == Code::kPeerLost);
}

TEST(memory_close_after_some_bytes) {
  auto [a, b] = MemoryChannel::Pair(0, 1);
  a->CloseAfter(5);
  EXPECT_EQ(*a->Write(Bytes(3)), size_t{3});
  EXPECT_EQ(*a->Write(Bytes(3)), size_t{2});
  EXPECT(a->Write(Bytes(1)).status().code() == Code::kPeerLost);
  Bytes got(9);
  EXPECT_EQ(*b->Read(got), size_t{5});
  EXPECT(b->Read(got).status().code() == Code::kPeerLost);
}

}  // namespace
}  // namespace hvd::test::transport_memory_channel
