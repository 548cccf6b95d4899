// Allgather, broadcast, alltoall, reducescatter, barrier and exchange over channels: numbers of ranks, uneven rows,
// fused lists, every kind of channel, hosts in any order.
#include "collective/channels/collectives.h"

#include <atomic>
#include <functional>

#include "collective/channels/schedule.h"
#include "native/collective/channels/world.h"

namespace hvd::test::collective_channels_collectives {
namespace {

using namespace hvd::collective;
using namespace hvd::collective::channels;

// Deterministic bytes of (who, what, for whom).
Bytes Noise(size_t bytes, uint64_t seed) { return RandomElements(DType::kUint8, bytes, seed); }
void Append(Bytes* to, const Bytes& more) { to->insert(to->end(), more.begin(), more.end()); }

struct Net {
  std::vector<int> hosts;
  Link link;
  bool share;
};
std::vector<Net> Nets(int n) {
  std::vector<Net> nets = {{Apart(n), Link::kShort, false}, {Apart(n), Link::kTcp, false}};
  std::vector<int> alternating;
  for (int r = 0; r < n; ++r) alternating.push_back(r % 2);
  nets.push_back({alternating, Link::kSocket, true});
  return nets;
}

void OnEveryNet(const std::vector<int>& sizes, const std::function<void(ChannelWorld&, const Group&)>& body) {
  for (const int n : sizes) {
    for (const Net& net : Nets(n)) {
      ChannelWorld world(net.hosts, net.link, net.share);
      RanksAsThreads(n, [&](int rank) {
        const auto side = world.MakeGroup(rank);
        body(world, side->group);
      });
    }
  }
}
const std::vector<int> kSizes = kThreadSanitizer ? std::vector{1, 2, 3, 5} : std::vector{1, 2, 3, 4, 5, 8};
constexpr int kShare = kSanitizer ? 5 : 1;  // of a large tensor

// Rows of member m in tensor i of a case; some have none.
int64_t RowsIn(int which, size_t i, int m) {
  if (which == 0) return m;                                        // small, uneven, the first empty
  if (which == 1) return 200 + 371 * static_cast<int64_t>(m + i);  // large
  return (m + static_cast<int>(i)) % 2 == 0 ? 0 : 3;               // every other one empty
}

TEST(channel_allgather_uneven_and_fused) {
  OnEveryNet(kSizes, [](ChannelWorld& world, const Group& group) {
    const int n = group.size(), rank = group.ranks[group.index];
    for (int which = 0; which < 3; ++which) {
      const std::vector<int64_t> row_elems = {1, 13, 64};
      const auto input = [&](size_t i, int m) {
        return Noise(static_cast<size_t>(RowsIn(which, i, m) * row_elems[i]) * 4, 100 * which + 10 * i + m);
      };
      Batch batch;
      batch.seq = which + 1;
      batch.type = OpType::kAllgather;
      std::vector<Bytes> own;
      for (size_t i = 0; i < row_elems.size(); ++i) own.push_back(input(i, group.index));
      for (size_t i = 0; i < row_elems.size(); ++i) {
        batch.tensors.push_back(MakeTensor(own[i].data(), nullptr, {RowsIn(which, i, group.index), row_elems[i]}));
        batch.tensors.back().row_elems = row_elems[i];
      }
      EXPECT_OK(world.Drive(rank, batch.seq, Allgather(group, batch)));
      for (size_t i = 0; i < row_elems.size(); ++i) {
        Bytes expected;
        std::vector<int64_t> rows;
        for (int m = 0; m < n; ++m) {
          Append(&expected, input(i, m));
          rows.push_back(RowsIn(which, i, m));
        }
        EXPECT(ResultIs(batch.tensors[i], expected));
        if (n > 1) EXPECT(batch.tensors[i].received_rows == rows);
      }
    }
  });
}

TEST(channel_broadcast_from_every_root) {
  OnEveryNet(kSizes, [](ChannelWorld& world, const Group& group) {
    uint64_t seq = 0;
    for (int root = 0; root < group.size(); ++root) {
      for (const size_t elems : {size_t{0}, size_t{1}, size_t{1000}, size_t{400001 / kShare}}) {
        Batch batch;
        batch.seq = ++seq;
        batch.type = OpType::kBroadcast;
        batch.root = root;
        const std::vector<Bytes> sent = {Noise(elems * 4, seq), Noise(12, seq + 1000)};
        std::vector<Bytes> in = sent, out = {Bytes(elems * 4), Bytes(12)};
        if (group.index != root) in = {Noise(elems * 4, 7), Noise(12, 8)};
        for (int i = 0; i < 2; ++i) {
          batch.tensors.push_back(MakeTensor(in[i].data(), root % 2 == 0 ? out[i].data() : in[i].data(),
                                             {static_cast<int64_t>(in[i].size() / 4)}));
        }
        EXPECT_OK(world.Drive(group.ranks[group.index], seq, Broadcast(group, batch)));
        EXPECT((root % 2 == 0 ? out : in) == sent);
      }
    }
  });
}

TEST(channel_alltoall_any_splits) {
  OnEveryNet(kSizes, [](ChannelWorld& world, const Group& group) {
    const int n = group.size(), me = group.index;
    for (int which = 0; which < 3; ++which) {
      const auto rows = [&](int from, int to, int i) { return RowsIn(which, i, (from * 3 + to) % n); };
      const auto block = [&](int from, int to, int i) {
        return Noise(static_cast<size_t>(rows(from, to, i)) * 5 * 8, 1000 * which + 100 * i + 10 * from + to);
      };
      Batch batch;
      batch.seq = which + 1;
      batch.type = OpType::kAlltoall;
      batch.dtype = DType::kInt64;
      std::vector<Bytes> input(2), expected(2);
      std::vector<std::vector<int64_t>> expected_rows(2);
      for (int i = 0; i < 2; ++i) {
        int64_t total = 0;
        std::vector<int64_t> splits;
        for (int m = 0; m < n; ++m) {
          Append(&input[i], block(me, m, i));
          Append(&expected[i], block(m, me, i));
          splits.push_back(rows(me, m, i));
          expected_rows[i].push_back(rows(m, me, i));
          total += splits.back();
        }
        batch.tensors.push_back(MakeTensor(input[i].data(), nullptr, {total, 5}));
        batch.tensors.back().splits = splits;
      }
      EXPECT_OK(world.Drive(group.ranks[me], batch.seq, Alltoall(group, batch)));
      for (int i = 0; i < 2; ++i) {
        EXPECT(ResultIs(batch.tensors[i], expected[i]));
        if (n > 1) EXPECT(batch.tensors[i].received_rows == expected_rows[i]);
      }
    }
  });
}

// The other member has said nothing yet: the rows do not wait for its sizes.
TEST(channel_rows_follow_their_sizes_at_once) {
  constexpr int64_t kRows = 1000;
  constexpr size_t kHeader = 32, kSizes = sizeof(int64_t);
  for (const OpType type : {OpType::kAlltoall, OpType::kAllgather}) {
    ChannelWorld world(Apart(2), Link::kMemory, false);
    const auto side = world.MakeGroup(0);
    const Bytes input = Noise(kRows * 8, 1);
    Batch batch;
    batch.seq = 1;
    batch.type = type;
    batch.dtype = DType::kInt64;
    batch.tensors.push_back(MakeTensor(input.data(), nullptr, {kRows}));
    batch.tensors[0].splits = {kRows / 4, kRows - kRows / 4};
    Runner runner(type == OpType::kAlltoall ? Alltoall(side->group, batch) : Allgather(side->group, batch));
    while (runner.Advance()) {
    }
    EXPECT(!runner.done());
    const size_t rows = type == OpType::kAlltoall ? kRows - kRows / 4 : kRows;
    Bytes sent(32 << 10);
    EXPECT_EQ(*world.channel(1, 0)->Read(sent), kHeader + kSizes + kHeader + rows * 8);
    EXPECT(std::equal(input.end() - static_cast<ptrdiff_t>(rows) * 8, input.end(),
                      sent.begin() + static_cast<ptrdiff_t>(kHeader + kSizes + kHeader)));
  }
}

TEST(channel_reducescatter_uneven_rows_and_factors) {
  OnEveryNet(kSizes, [](ChannelWorld& world, const Group& group) {
    const int n = group.size();
    uint64_t seq = 0;
    for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{n - 1}, int64_t{n + 1}, int64_t{20011 / kShare}}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32}) {
        for (const kernels::Factors& factors :
             {kernels::Factors{}, kernels::Factors{0.5, 1.0}, kernels::Factors{1.0, 2.0}, kernels::Factors{0.5, 4.0}}) {
          if (!IsFloat(dtype) && factors.pre != 1.0) continue;  // truncation makes the order of combination visible
          Batch batch;
          batch.seq = ++seq;
          batch.type = OpType::kReducescatter;
          batch.dtype = dtype;
          batch.op = seq % 2 == 0 ? ReduceOp::kSum : ReduceOp::kMax;
          batch.prescale = factors.pre;
          batch.postscale = factors.post;
          std::vector<std::vector<Bytes>> inputs(2);
          for (int i = 0; i < 2; ++i) {
            for (int m = 0; m < n; ++m)
              inputs[i].push_back(ExactElements(dtype, static_cast<size_t>(rows + i) * 7, seq * 100 + i * 10 + m));
            batch.tensors.push_back(MakeTensor(inputs[i][group.index].data(), nullptr, {rows + i, 7}));
          }
          const std::vector<Bytes> before = {inputs[0][group.index], inputs[1][group.index]};
          EXPECT_OK(world.Drive(group.ranks[group.index], seq, Reducescatter(group, batch)));
          for (int i = 0; i < 2; ++i) {
            const Bytes whole = Combine(dtype, batch.op, factors, inputs[i]);
            const Range part = PartOf(static_cast<size_t>(rows + i), n, group.index);
            const size_t row = 7 * SizeOf(dtype);
            EXPECT(ResultIs(batch.tensors[i], Bytes(whole.data() + part.begin * row, whole.data() + part.end * row)));
            EXPECT(inputs[i][group.index] == before[i]);
          }
        }
      }
    }
  });
}

// Nobody leaves before everybody has entered.
TEST(channel_barrier_holds_everybody) {
  for (const int n : kSizes) {
    ChannelWorld world(Apart(n), Link::kMemory, false);
    std::atomic<int> entered{0};
    RanksAsThreads(n, [&](int rank) {
      const auto side = world.MakeGroup(rank);
      for (int round = 1; round <= 20; ++round) {
        Batch batch;
        batch.seq = round;
        batch.type = OpType::kBarrier;
        ++entered;
        EXPECT_OK(world.Drive(rank, round, Barrier(side->group, batch)));
        EXPECT(entered >= round * n);
      }
    });
  }
}

TEST(channel_exchange_equal_blobs) {
  OnEveryNet(kSizes, [](ChannelWorld& world, const Group& group) {
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{24}, size_t{9000}}) {
      Batch batch;
      batch.seq = bytes + 1;
      const Bytes mine = Noise(bytes, group.index + 1);
      Bytes all(bytes * group.size()), expected;
      for (int m = 0; m < group.size(); ++m) Append(&expected, Noise(bytes, m + 1));
      EXPECT_OK(world.Drive(group.ranks[group.index], batch.seq, Exchange(group, batch, mine, all)));
      EXPECT(all == expected);
    }
  });
}

// A subset of the ranks, and two groups that alternate over the same channels.
TEST(channel_collectives_of_sub_groups) {
  ChannelWorld world({0, 1, 2, 0, 1}, Link::kTcp, true);
  const std::vector<int> some = {1, 2, 4}, others = {0, 3, 4};
  RanksAsThreads(5, [&](int rank) {
    for (int round = 0; round < 6; ++round) {
      const std::vector<int>& members = round % 2 == 0 ? some : others;
      if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
      const auto side = world.MakeGroup(rank, members);
      std::vector<float> data(1000 + round, static_cast<float>(rank));
      auto* bytes = reinterpret_cast<std::byte*>(data.data());
      Batch batch;
      batch.seq = round + 1;
      batch.tensors.push_back(MakeTensor(bytes, bytes, {1000 + round}));
      EXPECT_OK(world.Drive(rank, batch.seq, Allreduce(side->group, batch)));
      EXPECT_EQ(data[0], 7.0f);
      EXPECT_EQ(data.back(), 7.0f);
    }
  });
}

// Every collective ends with the name of a rank that is gone.
TEST(channel_collectives_name_the_dead) {
  using Collective = Task (*)(const Group&, Batch&);
  const std::vector<std::pair<OpType, Collective>> all = {{OpType::kAllgather, &Allgather},
                                                          {OpType::kBroadcast, &Broadcast},
                                                          {OpType::kAlltoall, &Alltoall},
                                                          {OpType::kReducescatter, &Reducescatter},
                                                          {OpType::kBarrier, &Barrier}};
  for (const auto& [type, collective] : all) {
    ChannelWorld world(Apart(3), Link::kSocket, false);
    std::atomic<int> named{0};
    RanksAsThreads(3, [&, type = type, collective = collective](int rank) {
      const auto side = world.MakeGroup(rank);
      if (rank == 0) return world.Kill(rank, 1);  // the root of the broadcast
      Bytes data(3 << 20), out(3 << 20);
      Batch batch;
      batch.seq = 1;
      batch.type = type;
      batch.dtype = DType::kUint8;
      batch.tensors.push_back(MakeTensor(data.data(), out.data(), {3 << 20}));
      batch.tensors[0].splits = {1 << 20, 1 << 20, 1 << 20};
      const Status status = world.Drive(rank, 1, collective(side->group, batch));
      EXPECT(status.code() == Code::kPeerLost);
      if (status.message().find("rank 0 closed the connection") != std::string::npos) ++named;
    });
    EXPECT(named > 0);
  }
}

}  // namespace
}  // namespace hvd::test::collective_channels_collectives
