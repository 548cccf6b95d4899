// TcpChannel: bytes both ways over loopback TCP and socket pairs, short writes, and what is said when the peer is gone.
#include <fcntl.h>
#include <netinet/tcp.h>

#include <csignal>

#include "native/collective/channels/world.h"

namespace hvd::test::transport_tcp_channel {
namespace {

using namespace hvd::transport;

constexpr double kSilenceS = 5;

std::pair<std::unique_ptr<TcpChannel>, std::unique_ptr<TcpChannel>> Ends(Link link, TcpUse use = TcpUse::kData) {
  const auto [a, b] = SocketPair(link);
  auto at_a = TcpChannel::Adopt(a, 0, 2, use, kSilenceS), at_b = TcpChannel::Adopt(b, 2, 0, use, kSilenceS);
  EXPECT_OK(at_a.status());
  EXPECT_OK(at_b.status());
  return {std::move(*at_a), std::move(*at_b)};
}

TEST(tcp_carries_bytes_in_order_both_ways) {
  for (const Link link : {Link::kSocket, Link::kTcp}) {
    auto [a, b] = Ends(link);
    const Bytes sent = RandomElements(DType::kUint8, 3 << 20, 5);
    Bytes got;
    size_t at = 0;
    while (got.size() < sent.size()) {
      const auto written = a->Write(std::span(sent).subspan(at));
      EXPECT_OK(written.status());
      at += *written;
      std::byte buffer[100000];
      const auto read = b->Read(buffer);
      EXPECT_OK(read.status());
      got.insert(got.end(), buffer, buffer + *read);
    }
    EXPECT(got == sent);
    EXPECT_OK(b->Write(std::span(sent).first(3)).status());
    std::byte back[10];
    size_t n = 0;
    while (n == 0) n = *a->Read(back);
    EXPECT(std::equal(back, back + n, sent.begin()));
  }
}

// In one packet, unless this thread is held up for so long that the kernel waits no longer.
TEST(tcp_sends_what_is_written_ahead_with_what_follows) {
  auto [a, b] = Ends(Link::kTcp);
  const Bytes sent = RandomElements(DType::kUint8, 50, 3);
  size_t most = 0;
  for (int attempt = 0; attempt < 20 && most < sent.size(); ++attempt) {
    EXPECT_EQ(*a->WriteAhead(std::span(sent).first(20)), size_t{20});
    EXPECT_EQ(*a->Write(std::span(sent).subspan(20)), size_t{30});
    Bytes got(50);
    for (size_t at = 0, n = 0; at < got.size(); at += n) {
      n = *b->Read(std::span(got).subspan(at));
      most = std::max(most, n);
    }
    EXPECT(got == sent);
  }
  EXPECT_EQ(most, sent.size());
}

TEST(tcp_never_blocks) {
  auto [a, b] = Ends(Link::kTcp);
  std::byte byte[1];
  EXPECT_EQ(*a->Read(byte), size_t{0});
  EXPECT_EQ(*a->Read({}), size_t{0});
  EXPECT_EQ(*a->Write({}), size_t{0});
  const Bytes much(1 << 20);
  size_t total = 0;
  for (size_t n = 1; n > 0;) total += n = *a->Write(much);  // ends because the peer does not read
  EXPECT(total > 0);
}

TEST(tcp_delivers_what_was_sent_before_the_close_then_names_the_peer) {
  for (const Link link : {Link::kSocket, Link::kTcp}) {
    auto [a, b] = Ends(link);
    const Bytes last = RandomElements(DType::kUint8, 5, 9);
    EXPECT_EQ(*b->Write(last), size_t{5});
    b.reset();
    Bytes got(5);
    size_t n = 0;
    while (n < 5) {
      const auto read = a->Read(std::span(got).subspan(n));
      EXPECT_OK(read.status());
      n += *read;
    }
    EXPECT(got == last);
    std::byte more[7];
    const Status gone = a->Read(more).status();
    EXPECT(gone.code() == Code::kPeerLost);
    EXPECT_EQ(gone.message(), "[tcp] rank 2 closed the connection while rank 0 was receiving 7 bytes.");
  }
}

TEST(tcp_writing_to_a_closed_connection_is_an_error_and_no_signal) {
  std::signal(SIGPIPE, SIG_DFL);
  auto [a, b] = Ends(Link::kSocket);
  b.reset();
  const Status gone = a->Write(Bytes(9)).status();
  EXPECT(gone.code() == Code::kPeerLost);
  EXPECT_EQ(gone.message(), "[tcp] rank 2 closed the connection while rank 0 was sending 9 bytes: Broken pipe.");
}

TEST(tcp_sets_its_options) {
  auto [a, b] = Ends(Link::kTcp, TcpUse::kControl);
  auto [c, d] = Ends(Link::kTcp, TcpUse::kData);
  const auto option = [](const Channel& channel, int level, int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    EXPECT_EQ(getsockopt(channel.fd(), level, name, &value, &size), 0);
    return value;
  };
  EXPECT(fcntl(a->fd(), F_GETFL) & O_NONBLOCK);
  EXPECT(option(*a, IPPROTO_TCP, TCP_NODELAY) != 0);
  EXPECT(option(*a, SOL_SOCKET, SO_KEEPALIVE) != 0);
  constexpr int kRtoMaxMs = 44;
  int longest_ms = 0;
  socklen_t size = sizeof(longest_ms);
  const bool steady = getsockopt(a->fd(), IPPROTO_TCP, kRtoMaxMs, &longest_ms, &size) == 0;
  if (steady) EXPECT_EQ(longest_ms, 1000);
  EXPECT_EQ(option(*a, IPPROTO_TCP, TCP_USER_TIMEOUT), PatienceOf(kSilenceS, steady).user_timeout_ms);
  // A peer that is alive but does not read must not count as dead in the data plane.
  EXPECT_EQ(option(*c, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  EXPECT_EQ(option(*c, IPPROTO_TCP, TCP_KEEPIDLE), 1);
  EXPECT_EQ(option(*c, IPPROTO_TCP, TCP_KEEPINTVL), 1);
  EXPECT_EQ(option(*c, IPPROTO_TCP, TCP_KEEPCNT), PatienceOf(kSilenceS, steady).probes);
}

// When the kernel repeats what was sent at the moment of a cut, up to a time.
std::vector<double> Repetitions(double longest_pause, double until) {
  std::vector<double> found;
  double at = 0;
  for (double pause = 0.2; at < until; pause = std::min(2 * pause, longest_pause)) found.push_back(at += pause);
  return found;
}

TEST(tcp_survives_every_cut_that_is_half_a_second_shorter_than_the_silence) {
  constexpr double kMarginS = 0.2;  // for a look, and for the answer
  for (double silence = 1; silence <= 120; silence += 0.5) {
    for (const bool steady : {true, false}) {
      const TcpPatience patience = PatienceOf(silence, steady);
      for (double cut = 0.1; cut <= silence - 0.5; cut += 0.1) {
        for (const double at : Repetitions(steady ? 1 : 120, 400)) {
          if (at < cut) continue;
          EXPECT(at + kMarginS < patience.silent_after_s && at + kMarginS < patience.user_timeout_ms / 1e3);
          break;
        }
      }
      // The last answer came up to a second before the cut; the probe of the time at which the kernel gives up is not
      // sent any more.
      EXPECT(patience.probes - 1 + 0.5 >= silence - 0.5 && patience.probes < 128);
      if (steady) EXPECT(patience.silent_after_s + 0.25 <= silence + 1);  // a look later, within the promise
    }
  }
}

TEST(tcp_refuses_what_is_no_socket) {
  const auto bad = TcpChannel::Adopt(-1, 0, 2, TcpUse::kData, kSilenceS);
  EXPECT(bad.status().code() == Code::kInternal);
  EXPECT(bad.status().message().find("rank 2") != std::string::npos);
}

}  // namespace
}  // namespace hvd::test::transport_tcp_channel
