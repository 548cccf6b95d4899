// LaterChannel: nothing moves and one wish is told until the way is there; then it is that way.
#include "transport/later_channel.h"

#include "native/harness/harness.h"
#include "transport/memory_channel.h"

namespace hvd::test::transport_later_channel {
namespace {

using namespace hvd::transport;

TEST(later_channel_wishes_once_and_then_carries) {
  std::vector<int> wishes;
  bool heard = false;
  LaterChannel channel(3, [&](int peer) {
    wishes.push_back(peer);
    return heard;
  });
  EXPECT(!channel.open() && channel.fd() < 0 && channel.peer() == 3 && wishes.empty());
  std::byte byte[1] = {std::byte{7}};
  EXPECT_EQ(*channel.Read(byte), size_t{0});
  heard = true;  // the first wish was lost
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*channel.Write(byte), size_t{0});
    EXPECT_EQ(*channel.Read(byte), size_t{0});
  }
  EXPECT(wishes == std::vector<int>({3, 3}));
  auto [here, there] = MemoryChannel::Pair(0, 3);
  channel.Open(std::move(here));
  EXPECT(channel.open());
  EXPECT_EQ(*channel.Write(byte), size_t{1});
  std::byte got[2];
  EXPECT_EQ(*there->Read(got), size_t{1});
  EXPECT(got[0] == byte[0]);
  there.reset();
  EXPECT(channel.Read(got).status().code() == Code::kPeerLost);
}

TEST(later_channel_that_cannot_be_opened_says_why_to_who_uses_it) {
  LaterChannel channel(3, [](int) { return true; });
  channel.Fail(Status(Code::kPeerLost, "rank 3 is away."));
  std::byte byte[1];
  EXPECT_EQ(channel.Write(byte).status().message(), "rank 3 is away.");
  EXPECT_EQ(channel.Read(byte).status().message(), "rank 3 is away.");
}

}  // namespace
}  // namespace hvd::test::transport_later_channel
