// Ranks as threads for tests of what runs over channels: groups whose members are on any hosts, the pairs connected by
// memory channels (with limits that force short reads and writes), socket pairs, loopback TCP, or byte rings in shared
// memory. When a rank fails it closes its channels, as the engine does.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "native/base/reduce_ops.h"
#include "native/collective/shm/world.h"
#include "transport/memory_channel.h"
#include "transport/ring_channel.h"
#include "transport/tcp_channel.h"

namespace hvd::test {

enum class Link { kMemory, kShort, kTiny, kSocket, kTcp };

inline std::pair<int, int> SocketPair(Link link) {
  int fds[2] = {-1, -1};
  if (link == Link::kSocket) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    return {fds[0], fds[1]};
  }
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fds[0], reinterpret_cast<sockaddr*>(&address), size), 0);
  fds[1] = accept(listener, nullptr, nullptr);
  EXPECT(fds[1] >= 0);
  close(listener);
  return {fds[0], fds[1]};
}

inline std::pair<std::unique_ptr<transport::Channel>, std::unique_ptr<transport::Channel>> Connect(Link link, int a,
                                                                                                   int b) {
  if (link == Link::kSocket || link == Link::kTcp) {
    const auto [fd_a, fd_b] = SocketPair(link);
    auto at_a = transport::TcpChannel::Adopt(fd_a, a, b, transport::TcpUse::kData, 5),
         at_b = transport::TcpChannel::Adopt(fd_b, b, a, transport::TcpUse::kData, 5);
    EXPECT_OK(at_a.status());
    EXPECT_OK(at_b.status());
    return {std::move(*at_a), std::move(*at_b)};
  }
  transport::MemoryChannel::Limits limits;
  if (link == Link::kShort) limits = {5000, 1500};
  if (link == Link::kTiny) limits = {48, 7};
  return transport::MemoryChannel::Pair(a, b, limits);
}

class ChannelWorld {
 public:
  // host_of[r]: host of rank r. `share`: the ranks of a host have shared memory (and ring channels), else `link`
  // connects them too.
  ChannelWorld(std::vector<int> host_of, Link link, bool share)
      : host_of_(std::move(host_of)), ranks_(host_of_.size()) {
    if (share) MakeHosts();
    for (int a = 0; a < size(); ++a) {
      for (int b = a + 1; b < size(); ++b) {
        if (host_of_[a] == host_of_[b] && share) {
          ranks_[a].channels[b] = std::make_unique<transport::RingChannel>(ranks_[a].neighbours.get(), ranks_[b].local,
                                                                           transport::RingKind::kData);
          ranks_[b].channels[a] = std::make_unique<transport::RingChannel>(ranks_[b].neighbours.get(), ranks_[a].local,
                                                                           transport::RingKind::kData);
        } else {
          std::tie(ranks_[a].channels[b], ranks_[b].channels[a]) = Connect(link, a, b);
        }
      }
    }
  }
  int size() const { return static_cast<int>(host_of_.size()); }
  transport::Neighbours* neighbours(int rank) { return ranks_[rank].neighbours.get(); }
  transport::Channel* channel(int from, int to) { return ranks_[from].channels[to].get(); }

  // The group of these ranks seen from `rank`, which is a member.
  std::unique_ptr<GroupSide> MakeGroup(int rank, const std::vector<int>& members) {
    auto side = std::make_unique<GroupSide>();
    collective::Group& g = side->group;
    g.ranks = members;
    g.stores = std::make_shared<collective::StoreChooser>(collective::StoreChooser::Setting::kMeasure);
    std::vector<int> locals;
    int place = 0;
    for (int m = 0; m < g.size(); ++m) {
      if (members[m] == rank) {
        g.index = m;
        place = static_cast<int>(locals.size());
      }
      g.host_of.push_back(host_of_[members[m]]);
      g.channels.push_back(members[m] == rank ? nullptr : channel(rank, members[m]));
      if (host_of_[members[m]] != host_of_[rank] || (!neighbours(rank) && members[m] != rank)) continue;
      g.local_members.push_back(m);
      locals.push_back(ranks_[members[m]].local);
    }
    if (locals.size() > 1) {
      side->view = std::make_unique<transport::LocalView>(neighbours(rank), locals, place);
      g.local = side->view.get();
    }
    return side;
  }
  std::unique_ptr<GroupSide> MakeGroup(int rank) {
    std::vector<int> members;
    for (int r = 0; r < size(); ++r) members.push_back(r);
    return MakeGroup(rank, members);
  }

  // Runs a task of `rank` to its end. A failure closes the rank's channels; kTimeout after a minute (a hang).
  Status Drive(int rank, uint64_t seq, Task task) {
    Runner runner(std::move(task));
    const auto start = std::chrono::steady_clock::now();
    for (int idle = 0; !runner.done();) {
      if (runner.Advance()) {
        idle = 0;
      } else {
        sched_yield();
        if (++idle % 1024 == 0 && std::chrono::steady_clock::now() - start > std::chrono::seconds(60)) {
          Kill(rank, seq);
          return Status(Code::kTimeout, "rank " + std::to_string(rank) + " hangs");
        }
      }
    }
    if (!runner.result().ok()) Kill(rank, seq);
    return runner.result();
  }
  // Called by the rank itself: it is gone for the others.
  void Kill(int rank, uint64_t seq) {
    if (neighbours(rank)) neighbours(rank)->Abandon(seq);
    ranks_[rank].channels.clear();
  }

 private:
  struct Rank {
    int local = 0;
    std::unique_ptr<transport::Neighbours> neighbours;
    std::map<int, std::unique_ptr<transport::Channel>> channels;
  };

  void MakeHosts() {
    std::map<int, std::vector<int>> hosts;
    for (int r = 0; r < size(); ++r) hosts[host_of_[r]].push_back(r);
    for (const auto& [host, ranks] : hosts) {
      const int n = static_cast<int>(ranks.size());
      std::vector<std::shared_ptr<transport::Region>> regions;
      std::vector<int> bells;
      for (int i = 0; i < n; ++i) {
        regions.push_back(transport::NewHeapRegion(transport::Arena::FixedBytes(n)));
        bells.push_back(eventfd(0, EFD_NONBLOCK));
      }
      for (int i = 0; i < n; ++i) {
        std::vector<transport::Neighbours::Member> members;
        for (int m = 0; m < n; ++m) members.push_back({ranks[m], regions[m], Fd(dup(bells[m]))});
        auto created = transport::Neighbours::Create(std::move(members), i);
        EXPECT_OK(created.status());
        ranks_[ranks[i]].local = i;
        ranks_[ranks[i]].neighbours = std::move(*created);
      }
      for (const int fd : bells) close(fd);
    }
  }

  std::vector<int> host_of_;
  std::vector<Rank> ranks_;
};

// Each rank on a host of its own.
inline std::vector<int> Apart(int n) {
  std::vector<int> hosts;
  for (int r = 0; r < n; ++r) hosts.push_back(r);
  return hosts;
}

inline const std::vector<DType>& AllDTypes() {
  static const auto* const kAll = new std::vector<DType>{
      DType::kUint8,    DType::kInt8,    DType::kUint16,  DType::kInt16,        DType::kInt32,
      DType::kInt64,    DType::kFloat16, DType::kFloat32, DType::kFloat64,      DType::kBool,
      DType::kBfloat16, DType::kUint32,  DType::kUint64,  DType::kFloat8E4m3fn, DType::kFloat8E5m2};
  return *kAll;
}

// Elements 1 or 2 (bool and float8_e5m2: 0 or 1): every operation over up to 8 ranks is exact in every type, in any
// order of combination.
inline Bytes ExactElements(DType dtype, size_t elems, uint64_t seed) {
  uint8_t one[2][8] = {};
  Bytes data(elems * SizeOf(dtype));
  const auto put = [&](auto a, auto b) {
    std::memcpy(one[0], &a, sizeof(a));
    std::memcpy(one[1], &b, sizeof(b));
  };
  switch (dtype) {
    case DType::kFloat32:
      put(1.0f, 2.0f);
      break;
    case DType::kFloat64:
      put(1.0, 2.0);
      break;
    case DType::kFloat16:
      put(uint16_t{0x3c00}, uint16_t{0x4000});
      break;
    case DType::kBfloat16:
      put(uint16_t{0x3f80}, uint16_t{0x4000});
      break;
    case DType::kFloat8E4m3fn:
      put(uint8_t{0x38}, uint8_t{0x40});
      break;
    case DType::kFloat8E5m2:
      put(uint8_t{0}, uint8_t{0x3c});
      break;
    case DType::kBool:
      put(uint8_t{0}, uint8_t{1});
      break;
    default:
      put(uint64_t{1}, uint64_t{2});
      break;  // little-endian integers
  }
  uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
  for (size_t i = 0; i < elems; ++i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    std::memcpy(data.data() + i * SizeOf(dtype), one[(x >> 20) & 1], SizeOf(dtype));
  }
  return data;
}

}  // namespace hvd::test
