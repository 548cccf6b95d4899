// FrameStream: frames of every size through short reads and writes, over rings and sockets; bounds; and every way to
// tamper with authenticated frames. Test vectors of SipHash-2-4-128.
#include "transport/frame_stream.h"

#include "base/siphash.h"
#include "native/collective/channels/world.h"

namespace hvd::test::transport_frame_stream {
namespace {

using namespace hvd::transport;

const FrameStream::Key kKey = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

Bytes Frame(size_t bytes, uint64_t seed) { return RandomElements(DType::kUint8, bytes, seed); }

std::string Hex(const std::array<uint8_t, 16>& code) {
  std::string text;
  for (const uint8_t b : code) text += "0123456789abcdef"[b >> 4], text += "0123456789abcdef"[b & 15];
  return text;
}

// Key 00 01 .. 0f; messages of 0, 1, 2, 3 bytes 00 01 ...: published vectors of SipHash-2-4 with 128 bits of output.
TEST(siphash_published_vectors) {
  std::array<uint8_t, 16> key;
  for (int i = 0; i < 16; ++i) key[i] = static_cast<uint8_t>(i);
  const std::string expected[] = {"a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45",
                                  "8177228da4a45dc7fca38bdef60affe4", "9c70b60c5267a94e5f33b6b02985ed51"};
  Bytes message;
  for (size_t n = 0; n < 4; ++n) {
    SipHash128 hash(key);
    hash.Update(message);
    EXPECT_EQ(Hex(hash.Finish()), expected[n]);
    message.push_back(static_cast<std::byte>(n));
  }
}

TEST(siphash_pieces_make_no_difference) {
  const Bytes message = Frame(100, 1);
  SipHash128 whole(kKey);
  whole.Update(message);
  const auto expected = whole.Finish();
  for (size_t cut = 0; cut <= 100; cut += 3) {
    SipHash128 parts(kKey);
    parts.Update(std::span(message).first(cut / 2));
    parts.Update(std::span(message).subspan(cut / 2, cut - cut / 2));
    parts.Update(std::span(message).subspan(cut));
    EXPECT(parts.Finish() == expected);
  }
}

// Sends the frames from one end and receives them at the other, in one thread.
void Exchange(Channel* a, Channel* b, std::optional<FrameStream::Key> key, const std::vector<Bytes>& frames) {
  FrameStream out(a, 0, key), in(b, 1, key);
  size_t sent = 0, got = 0;
  for (int idle = 0; got < frames.size() && idle < 1000;) {
    if (sent < frames.size()) EXPECT_OK(out.Send(frames[sent++]));
    EXPECT_OK(out.Flush());
    auto frame = in.Receive();
    EXPECT_OK(frame.status());
    if (!frame.ok()) return;
    ++idle;
    if (!frame->has_value()) continue;
    EXPECT(std::equal((*frame)->begin(), (*frame)->end(), frames[got].begin(), frames[got].end()));
    ++got;
    idle = 0;
  }
  EXPECT_EQ(got, frames.size());
  EXPECT(!out.has_unsent());
}

TEST(frame_stream_delivers_frames_whole_and_in_order) {
  std::vector<Bytes> frames;
  for (const size_t bytes : {0, 1, 3, 100, 5000, 0, 70000, 2, 200000, 17, 3 << 20, 1 << 20, (1 << 20) + 1, 5})
    frames.push_back(Frame(bytes, bytes + 1));
  for (int i = 0; i < 300; ++i) frames.push_back(Frame(i % 37, i));
  for (const std::optional<FrameStream::Key>& key : {std::optional<FrameStream::Key>(), std::optional(kKey)}) {
    for (const Link link : {Link::kMemory, Link::kShort, Link::kSocket, Link::kTcp}) {
      auto [a, b] = Connect(link, 0, 1);
      Exchange(a.get(), b.get(), key, frames);
    }
    ChannelWorld world({0, 0}, Link::kMemory, true);
    RingChannel a(world.neighbours(0), 1, RingKind::kControl), b(world.neighbours(1), 0, RingKind::kControl);
    Exchange(&a, &b, key, frames);
  }
}

TEST(frame_stream_through_a_byte_at_a_time) {
  auto [a, b] = MemoryChannel::Pair(0, 1, {3, 1});
  Exchange(a.get(), b.get(), kKey, {Frame(50, 1), {}, Frame(1, 2)});
}

TEST(frame_stream_queue_waits_for_flush) {
  auto [a, b] = MemoryChannel::Pair(0, 1);
  FrameStream out(a.get(), 0), in(b.get(), 1);
  EXPECT_OK(out.Queue(Frame(5, 1)));
  EXPECT(out.has_unsent());
  EXPECT(!in.Receive()->has_value());
  EXPECT_OK(out.Flush());
  EXPECT(in.Receive()->has_value());
}

TEST(frame_stream_delivers_whole_frames_before_the_close) {
  auto [a, b] = MemoryChannel::Pair(0, 1);
  FrameStream out(a.get(), 0), in(b.get(), 1);
  EXPECT_OK(out.Send(Frame(9, 1)));
  EXPECT_OK(out.Send(Frame(9, 2)));
  a->CloseAfter(6);  // in the middle of the third
  EXPECT_OK(out.Queue(Frame(9, 3)));
  EXPECT(!out.Flush().ok());
  EXPECT_EQ(in.Receive()->value().size(), size_t{9});
  EXPECT_EQ(in.Receive()->value().size(), size_t{9});
  const auto gone = in.Receive();
  EXPECT(gone.status().code() == Code::kPeerLost);
  EXPECT(gone.status().message().find("rank 0") != std::string::npos);
  EXPECT(in.Receive().status().code() == Code::kPeerLost);  // stays failed
}

TEST(frame_stream_bounds_the_size) {
  auto [a, b] = MemoryChannel::Pair(0, 1);
  FrameStream out(a.get(), 0), in(b.get(), 1);
  EXPECT(out.Send(Bytes(kMaxFrameBytes + 1)).code() == Code::kInternal);
  EXPECT(out.failed().code() == Code::kInternal);
  const uint32_t huge = kMaxPieceBytes + 1;
  EXPECT_OK(a->Write(std::as_bytes(std::span(&huge, 1))).status());
  const auto refused = in.Receive();
  EXPECT(refused.status().code() == Code::kInternal);
  EXPECT(refused.status().message().find("[memory] rank 0 announced 1048577 bytes of a control frame to rank 1") == 0);
}

TEST(frame_stream_a_frame_without_end_is_refused) {
  auto [a, b] = MemoryChannel::Pair(0, 1, {size_t{2} << 20});
  FrameStream in(b.get(), 1);
  Bytes piece(4 + kMaxPieceBytes);
  const uint32_t head = kMaxPieceBytes | (uint32_t{1} << 31);
  std::memcpy(piece.data(), &head, sizeof head);
  Status status;
  size_t sent = 0;
  for (; status.ok() && sent <= 2 * kMaxFrameBytes; sent += kMaxPieceBytes) {
    EXPECT_EQ(*a->Write(piece), piece.size());
    auto frame = in.Receive();
    status = frame.status();
    if (frame.ok()) EXPECT(!frame->has_value());
  }
  EXPECT(status.code() == Code::kInternal);
  EXPECT_EQ(sent, kMaxFrameBytes + kMaxPieceBytes);
}

TEST(frame_stream_gives_up_on_a_peer_that_does_not_read) {
  auto [a, b] = MemoryChannel::Pair(0, 1);
  FrameStream out(a.get(), 0);
  const Bytes frame(kMaxQueuedFrameBytes / 4);
  Status status;
  int sent = 0;
  while (status.ok() && sent < 10) status = out.Send(frame), ++sent;
  EXPECT(status.code() == Code::kPeerLost);
  EXPECT(status.message().find("rank 1 does not read") != std::string::npos);
}

// What two authenticated frames look like on the wire.
std::vector<Bytes> Captured(int sender, int receiver, const FrameStream::Key& key) {
  auto [a, b] = MemoryChannel::Pair(sender, receiver);
  FrameStream out(a.get(), sender, key);
  std::vector<Bytes> frames;
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(out.Send(Frame(20, i + 1)));
    Bytes wire(4 + 16 + 20);
    EXPECT_EQ(*b->Read(wire), wire.size());
    frames.push_back(wire);
  }
  return frames;
}
// Gives rank 1 these bytes from "rank 0"; the status after the frames that are fine.
Status Judge(const std::vector<Bytes>& wire, int* fine) {
  auto [a, b] = MemoryChannel::Pair(0, 1);
  for (const Bytes& bytes : wire) EXPECT_EQ(*a->Write(bytes), bytes.size());
  FrameStream in(b.get(), 1, kKey);
  for (*fine = 0;; ++*fine) {
    auto frame = in.Receive();
    if (!frame.ok() || !frame->has_value()) return frame.status();
  }
}

TEST(frame_stream_refuses_tampered_frames) {
  const std::vector<Bytes> good = Captured(0, 1, kKey);
  int fine = 0;
  EXPECT_OK(Judge(good, &fine));
  EXPECT_EQ(fine, 2);
  const auto refused = [&](const std::vector<Bytes>& wire, int expected_fine) {
    const Status status = Judge(wire, &fine);
    EXPECT(status.code() == Code::kInternal);
    EXPECT(status.message().find("from rank 0 to rank 1 fails authentication") != std::string::npos);
    EXPECT_EQ(fine, expected_fine);
  };
  for (size_t i = 4; i < good[0].size(); ++i) {  // any bit of code or payload
    std::vector<Bytes> changed = good;
    changed[0][i] ^= std::byte{4};
    refused(changed, 0);
  }
  std::vector<Bytes> shorter = good;
  shorter[0][0] = std::byte{19};
  refused(shorter, 0);
  std::vector<Bytes> going_on = good;
  going_on[0][3] ^= std::byte{0x80};  // of one frame with the next
  refused(going_on, 0);
  refused({good[0], good[0]}, 1);    // repeated
  refused({good[1], good[0]}, 0);    // reordered
  refused({good[1]}, 0);             // one left out
  refused(Captured(1, 0, kKey), 0);  // our own frames, sent back
  FrameStream::Key other = kKey;
  other[15] ^= 1;
  refused(Captured(0, 1, other), 0);  // another connection's key
}

}  // namespace
}  // namespace hvd::test::transport_frame_stream
