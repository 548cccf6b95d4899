// hosts::Allreduce: even and uneven hosts, hosts in any rank order, types, factors, fused lists, sizes around every
// boundary; equal bits; the bytes that leave a host; faults.
#include <numeric>

#include "collective/hosts/collectives.h"
#include "native/collective/channels/world.h"
#include "native/collective/hosts/counting.h"

namespace hvd::test::collective_hosts_allreduce {
namespace {

using namespace hvd::collective;

struct Case {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<size_t> sizes;
  kernels::Factors factors;
  bool in_place = true;
};

void RunCase(ChannelWorld& world, const Group& group, uint64_t seq, const Case& c) {
  Batch batch;
  batch.seq = seq;
  batch.dtype = c.dtype;
  batch.op = c.op;
  batch.prescale = c.factors.pre;
  batch.postscale = c.factors.post;
  std::vector<Bytes> inputs, outputs;
  const auto input = [&](size_t i, int m) { return ExactElements(c.dtype, c.sizes[i], seq * 1009 + i * 31 + m); };
  for (size_t i = 0; i < c.sizes.size(); ++i) {
    inputs.push_back(input(i, group.index));
    outputs.push_back(Bytes(inputs[i].size()));
  }
  for (size_t i = 0; i < c.sizes.size(); ++i) {
    batch.tensors.push_back(MakeTensor(inputs[i].data(), c.in_place ? inputs[i].data() : outputs[i].data(),
                                       {static_cast<int64_t>(c.sizes[i])}));
  }
  EXPECT_OK(world.Drive(group.ranks[group.index], seq, hosts::Allreduce(group, batch)));
  for (size_t i = 0; i < c.sizes.size(); ++i) {
    std::vector<Bytes> all;
    for (int m = 0; m < group.size(); ++m) all.push_back(input(i, m));
    EXPECT(Combine(c.dtype, c.op, c.factors, all) == (c.in_place ? inputs[i] : outputs[i]));
    if (!c.in_place) EXPECT(inputs[i] == all[group.index]);
  }
}

const std::vector<std::vector<int>>& Layouts() {
  static const auto* const kLayouts = new std::vector<std::vector<int>>{
      {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 0, 0, 1, 1}, {7, 7, 3, 3, 5, 5}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1}};
  return *kLayouts;
}

void OnEveryLayout(Link link, const std::vector<Case>& cases) {
  for (const std::vector<int>& hosts : Layouts()) {
    ChannelWorld world(hosts, link, true);
    RanksAsThreads(world.size(), [&](int rank) {
      const auto side = world.MakeGroup(rank);
      uint64_t seq = 0;
      for (const Case& c : cases) RunCase(world, side->group, ++seq, c);
    });
  }
}

TEST(two_level_types_and_sizes) {
  std::vector<Case> cases;
  for (const DType dtype : AllDTypes()) {
    for (const ReduceOp op : ElementwiseOps()) {
      for (const size_t size : {size_t{0}, size_t{1}, size_t{3}, size_t{5}, size_t{1000}})
        cases.push_back({dtype, op, {size}, {}, size % 2 == 0});
    }
  }
  OnEveryLayout(Link::kMemory, cases);
}

TEST(two_level_large_and_fused) {
  constexpr size_t kShare = kSanitizer ? 5 : 1;
  std::vector<size_t> many;
  for (size_t i = 0; i < 60; ++i) many.push_back(i * 37 % 5000);
  OnEveryLayout(Link::kTcp, {{DType::kFloat32, ReduceOp::kSum, {100003}, {}, true},
                             {DType::kFloat32, ReduceOp::kSum, {1500007 / kShare}, {}, false},
                             {DType::kFloat16, ReduceOp::kSum, {900001 / kShare, 3, 70000}, {}, true},
                             {DType::kInt64, ReduceOp::kMax, many, {}, false},
                             {DType::kUint8, ReduceOp::kSum, {(1 << 20) / kShare, 1}, {}, true}});
}

TEST(two_level_factors) {
  OnEveryLayout(Link::kShort, {{DType::kFloat32, ReduceOp::kSum, {5000, 1}, {0.5, 4.0}, true},
                               {DType::kFloat16, ReduceOp::kMin, {5000}, {-0.5, 1.0}, false},
                               {DType::kFloat32, ReduceOp::kSum, {200000}, {1.0, 0.25}, true},
                               {DType::kInt32, ReduceOp::kSum, {200000}, {1.0, 3.0}, false}});
}

TEST(two_level_equal_bits) {
  for (const std::vector<int>& hosts : Layouts()) {
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
      ChannelWorld world(hosts, Link::kMemory, true);
      const int n = world.size();
      const size_t elems = 300007;
      std::vector<Bytes> data(n);
      for (int r = 0; r < n; ++r) data[r] = RandomElements(dtype, elems, r + 1);
      RanksAsThreads(n, [&](int rank) {
        const auto side = world.MakeGroup(rank);
        Batch batch;
        batch.seq = 1;
        batch.dtype = dtype;
        batch.tensors.push_back(MakeTensor(data[rank].data(), data[rank].data(), {static_cast<int64_t>(elems)}));
        EXPECT_OK(world.Drive(rank, 1, hosts::Allreduce(side->group, batch)));
      });
      for (int r = 1; r < n; ++r) EXPECT(data[r] == data[0]);
    }
  }
}

// A member that is alone on its host must come to the same answer as the others.
TEST(two_level_applies_equally_on_all_members) {
  const auto applies = [](std::vector<int> hosts) {
    ChannelWorld world(std::move(hosts), Link::kMemory, true);
    int yes = 0;
    for (int r = 0; r < world.size(); ++r) yes += hosts::Applies(world.MakeGroup(r)->group) ? 1 : 0;
    return yes;
  };
  EXPECT_EQ(applies({0, 0, 0, 1}), 4);
  EXPECT_EQ(applies({0, 1, 0, 1}), 4);
  EXPECT_EQ(applies({0, 1, 2}), 0);
  EXPECT_EQ(applies({0, 0}), 0);
}

// 2 (h-1)/h of the vector leaves a host, shared by its owners.
TEST(two_level_sends_each_byte_once_between_hosts) {
  ChannelWorld world({0, 0, 1, 1}, Link::kMemory, true);
  const size_t elems = 1 << 20;
  std::vector<std::vector<size_t>> written(4);
  RanksAsThreads(4, [&](int rank) {
    const auto side = world.MakeGroup(rank);
    const auto counting = Count(&side->group, &written[rank]);
    std::vector<float> data(elems, 1.0f);
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    Batch batch;
    batch.seq = 1;
    batch.tensors.push_back(MakeTensor(bytes, bytes, {static_cast<int64_t>(elems)}));
    EXPECT_OK(world.Drive(rank, 1, hosts::Allreduce(side->group, batch)));
    EXPECT_EQ(data[elems - 1], 4.0f);
  });
  for (int r = 0; r < 4; ++r) {
    const size_t sent = std::accumulate(written[r].begin(), written[r].end(), size_t{0});
    EXPECT(sent >= elems * 4 / 2);
    EXPECT(sent <= elems * 4 / 2 + 4096);  // headers
  }
}

TEST(two_level_ends_when_a_rank_dies) {
  for (const size_t elems : {size_t{10}, size_t{2000000}}) {
    for (const int dead : {0, 3}) {
      ChannelWorld world({0, 0, 1, 1}, Link::kTcp, true);
      RanksAsThreads(4, [&](int rank) {
        const auto side = world.MakeGroup(rank);
        std::vector<float> data(elems, 1.0f);
        auto* bytes = reinterpret_cast<std::byte*>(data.data());
        Batch batch;
        batch.seq = 1;
        batch.tensors.push_back(MakeTensor(bytes, bytes, {static_cast<int64_t>(elems)}));
        Runner runner(hosts::Allreduce(side->group, batch));
        if (rank == dead) {
          for (int i = 0; elems > 10 && i < 5; ++i) runner.Advance();  // few elements: gone from the start
          return world.Kill(rank, 1);
        }
        const Status status = world.Drive(rank, 1, hosts::Allreduce(side->group, batch));
        EXPECT(!status.ok() && status.code() != Code::kTimeout);
      });
    }
  }
}

}  // namespace
}  // namespace hvd::test::collective_hosts_allreduce
