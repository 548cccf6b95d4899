// Data connections that are opened when they are first needed: by what needs them and nothing else, while threads
// sleep; and what becomes of those that never come.
#include <poll.h>

#include <set>

#include "native/engine/world.h"

namespace hvd::test::engine_openings {

using namespace hvd::engine;

namespace {

using Pairs = std::set<std::pair<int, int>>;

// Wishes that were heard, and those connected.
struct Wishes {
  std::mutex mutex;  // guards pairs
  Pairs pairs;
  Pairs Heard() {
    std::lock_guard<std::mutex> lock(mutex);
    return pairs;
  }
  bool First(int rank, int peer) {
    std::lock_guard<std::mutex> lock(mutex);
    return pairs.emplace(rank, peer).second;
  }
};

EngineWorld::Options OnHosts(std::vector<int> hosts, Wishes* wishes, double delay_s = 0) {
  EngineWorld::Options options;
  options.host_of_rank = std::move(hosts);
  options.on_wish = [=](EngineWorld& world, int rank, int peer) {
    EXPECT(peer < rank && wishes->First(rank, peer));
    std::this_thread::sleep_for(std::chrono::duration<double>(delay_s));
    world.Connect(rank, peer);
  };
  return options;
}

Status Allreduce(EngineWorld& world, int r, const std::string& name, size_t elems, int set = 0) {
  std::vector<float> data(elems, static_cast<float>(r + 1));
  Op op(HVD_ALLREDUCE, HVD_FLOAT32, name, {static_cast<int64_t>(elems)}, data.data(), data.data());
  op.op.process_set = set;
  const Status status = RunOp(world[r], op.op);
  if (status.ok() && set == 0) {
    const int n = world.size();
    EXPECT(data.front() == static_cast<float>(n * (n + 1) / 2) && data.back() == data.front());
  }
  return status;
}

}  // namespace

TEST(openings_every_pair_that_an_alltoall_needs_and_all_of_it_arrives) {
  Wishes wishes;
  const int n = 5, rows = 8 << 10;  // too much to be forwarded by other ranks of the hosts
  EngineWorld world(n, OnHosts({0, 0, 1, 2, 2}, &wishes, 0.02));
  RanksAsThreads(n, [&](int r) {
    for (int round = 0; round < 3; ++round) {
      std::vector<int32_t> data;
      for (int m = 0; m < n; ++m) data.insert(data.end(), rows, 100 * r + m);
      Op op(HVD_ALLTOALL, HVD_INT32, "all", {n * rows}, data.data(), static_cast<int32_t*>(nullptr));
      std::shared_ptr<Completion> done;
      EXPECT_OK(RunOp(world[r], op.op, &done));
      const auto* got = reinterpret_cast<const int32_t*>(done->results[0].tensor.output);
      for (int i = 0; i < n * rows; ++i) EXPECT_EQ(got[i], 100 * (i / rows) + r);
      EXPECT_OK(Allreduce(world, r, "sum", 1 << 16));
    }
  });
  EXPECT(wishes.Heard() == Pairs({{2, 0}, {2, 1}, {3, 0}, {3, 1}, {3, 2}, {4, 0}, {4, 1}, {4, 2}}));
}

TEST(openings_only_what_a_process_set_needs) {
  Wishes wishes;
  const int n = 4;
  EngineWorld world(n, OnHosts({0, 1, 2, 3}, &wishes));
  RanksAsThreads(n, [&](int r) {
    std::shared_ptr<Completion> added;
    EXPECT_OK(world[r].AddSet({1, 3}, &added));
    EXPECT(world[r].Wait(*added, 60) && added->status().ok());
    if (r % 2 == 1) EXPECT_OK(Allreduce(world, r, "ours", 1 << 16, static_cast<int>(added->value)));
  });
  EXPECT(wishes.Heard() == Pairs({{3, 1}}));
}

TEST(openings_a_connection_that_cannot_be_made_is_an_error_that_says_why) {
  const int n = 2;
  EngineWorld::Options options;
  options.host_of_rank = {0, 1};
  options.on_wish = [](EngineWorld& world, int rank, int peer) {
    EXPECT_OK(world[rank].Connected(peer, Fd(), Status(Code::kPeerLost, "rank 0 cannot be reached at nowhere.")));
  };
  EngineWorld world(n, options);
  RanksAsThreads(n, [&](int r) {
    const Status status = Allreduce(world, r, "x", 1 << 16);
    EXPECT(status.message().find("rank 0 cannot be reached at nowhere.") != std::string::npos);
  });
}

TEST(openings_a_wish_that_nobody_fulfils_is_a_timeout_that_names_the_rank) {
  const int n = 2;
  EngineWorld::Options options;
  options.host_of_rank = {0, 1};
  options.collective_timeout_s = 0.3;
  options.on_wish = [](EngineWorld&, int, int) {};
  EngineWorld world(n, options);
  RanksAsThreads(n, [&](int r) {
    const Status status = Allreduce(world, r, "x", 1 << 16);
    EXPECT(status.code() == Code::kTimeout || status.code() == Code::kPeerLost || status.code() == Code::kInternal);
    const std::string who = "waiting for rank " + std::to_string(1 - r) + ", to which no connection could be opened";
    const std::string other = "waiting for rank " + std::to_string(r) + ", to which no connection could be opened";
    EXPECT(status.message().find(who) != std::string::npos || status.message().find(other) != std::string::npos);
  });
}

TEST(openings_connections_that_nobody_waits_for_are_closed) {
  Wishes wishes;
  EngineWorld world(2, OnHosts({0, 1}, &wishes));
  RanksAsThreads(2, [&](int r) { EXPECT_OK(Allreduce(world, r, "x", 1 << 16)); });
  for (const int peer : {0, 7}) {  // one that is open already, no rank
    std::array<int, 2> ends;
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data());
    const Status status = world[1].Connected(peer, Fd(ends[0]), Status());
    EXPECT_EQ(status.code() == Code::kInvalidArgument, peer == 7);
    world[1].Poll();
    pollfd closed{ends[1], POLLIN, 0};
    EXPECT_EQ(poll(&closed, 1, 10000), 1);
    char byte;
    EXPECT_EQ(recv(ends[1], &byte, 1, MSG_DONTWAIT), ssize_t{0});
    close(ends[1]);
  }
  RanksAsThreads(2, [&](int r) { EXPECT_OK(Allreduce(world, r, "y", 1 << 16)); });
}

}  // namespace hvd::test::engine_openings
