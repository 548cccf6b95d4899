// Two ranks (threads) over loopback TCP: allreduce against what the socket itself carries in the same run. Prints
// ratios; absolute times depend on the machine and on its neighbours. A ring of two sends the whole vector once each
// way, so the raw both-ways rate is its limit.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "collective/channels/collectives.h"
#include "transport/tcp_channel.h"

namespace {

using hvd::transport::Channel;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::unique_ptr<Channel> Adopt(int fd, int self) {
  return std::move(*hvd::transport::TcpChannel::Adopt(fd, self, 1 - self, hvd::transport::TcpUse::kData));
}

std::vector<std::unique_ptr<Channel>> Loopback() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const int a = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      connect(a, reinterpret_cast<sockaddr*>(&address), size) != 0) {
    std::perror("loopback");
    std::exit(1);
  }
  const int b = accept(listener, nullptr, nullptr);
  close(listener);
  std::vector<std::unique_ptr<Channel>> ends;
  ends.push_back(Adopt(a, 0));
  ends.push_back(Adopt(b, 1));
  return ends;
}

// Sends and receives so many bytes, whichever can go on.
void Move(Channel* channel, std::byte* out, size_t to_send, std::byte* in, size_t to_receive) {
  constexpr size_t kChunk = 256 << 10;
  size_t sent = 0, got = 0;
  while (sent < to_send || got < to_receive) {
    size_t n = 0;
    if (sent < to_send) n += *channel->Write({out + sent, std::min(kChunk, to_send - sent)}), sent += n;
    if (got < to_receive) {
      const size_t m = *channel->Read({in + got, std::min(kChunk, to_receive - got)});
      got += m;
      n += m;
    }
    if (n == 0) sched_yield();
  }
}

// Seconds of one iteration, the slower rank, median of some.
template <class Body>
double Measure(int iterations, Body body) {
  std::vector<double> times;
  for (int i = 0; i < iterations; ++i) {
    std::atomic<int> ready{0};
    double took[2];
    const auto run = [&](int rank) {
      ++ready;
      while (ready < 2) sched_yield();
      const double start = Now();
      body(rank, i);
      took[rank] = Now() - start;
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    times.push_back(std::max(took[0], took[1]));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Rank {
  hvd::collective::Group group;
  std::vector<float> data, spare;
};

double Allreduce(std::vector<Rank>& ranks, size_t elems, int iterations, int repeats) {
  static uint64_t seq = 0;
  const uint64_t base = seq;
  seq += static_cast<uint64_t>(iterations) * repeats;
  return Measure(iterations,
                 [&](int r, int i) {
                   Rank& rank = ranks[r];
                   for (int k = 0; k < repeats; ++k) {
                     hvd::collective::Batch batch;
                     batch.seq = base + static_cast<uint64_t>(i) * repeats + k + 1;
                     batch.postscale = 0.5;
                     hvd::collective::Tensor t;
                     t.input = t.output = reinterpret_cast<std::byte*>(rank.data.data());
                     t.elems = elems;
                     t.shape = {static_cast<int64_t>(elems)};
                     batch.tensors.push_back(std::move(t));
                     hvd::Runner runner(hvd::collective::channels::Allreduce(rank.group, batch));
                     while (!runner.done()) {
                       if (!runner.Advance()) sched_yield();
                     }
                     if (!runner.result().ok()) std::fprintf(stderr, "%s\n", runner.result().message().c_str());
                   }
                 }) /
         repeats;
}

}  // namespace

int main() {
  auto ends = Loopback();
  std::vector<Rank> ranks(2);
  const size_t most = 16 << 20;
  for (int r = 0; r < 2; ++r) {
    hvd::collective::Group& g = ranks[r].group;
    g.ranks = {0, 1};
    g.host_of = {0, 1};
    g.index = r;
    g.local_members = {r};
    g.channels = {r == 0 ? nullptr : ends[1].get(), r == 0 ? ends[0].get() : nullptr};
    ranks[r].data.assign(most, 1.0f);
    ranks[r].spare.assign(most, 0.0f);
  }
  const auto raw = [&](size_t bytes, bool both) {
    return Measure(7, [&](int r, int) {
      auto* out = reinterpret_cast<std::byte*>(ranks[r].data.data());
      auto* in = reinterpret_cast<std::byte*>(ranks[r].spare.data());
      Move(ends[r].get(), out, both || r == 0 ? bytes : 0, in, both || r == 1 ? bytes : 0);
    });
  };
  std::printf("%10s %12s %12s %12s   %s\n", "bytes", "one way", "both ways", "allreduce", "both ways / allreduce");
  for (const size_t bytes : {size_t{1} << 20, size_t{16} << 20, size_t{64} << 20}) {
    const double one = raw(bytes, false), both = raw(bytes, true), reduce = Allreduce(ranks, bytes / 4, 7, 1);
    std::printf("%10zu %9.2f ms %9.2f ms %9.2f ms   %.2f\n", bytes, one * 1e3, both * 1e3, reduce * 1e3, both / reduce);
  }
  constexpr int kRounds = 500;
  const double exchange = Measure(5,
                                  [&](int r, int) {
                                    std::byte out[4] = {}, in[4];
                                    for (int k = 0; k < kRounds; ++k) Move(ends[r].get(), out, 4, in, 4);
                                  }) /
                          kRounds;
  const double tiny = Allreduce(ranks, 1, 5, kRounds);
  std::printf("%10d %12s %9.2f us %9.2f us   %.2f\n", 4, "", exchange * 1e6, tiny * 1e6, exchange / tiny);
  return 0;
}
