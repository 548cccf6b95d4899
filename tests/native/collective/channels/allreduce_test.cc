// channels::Allreduce over memory, socket, TCP and ring channels: all numbers of ranks, types, operations and sizes;
// fused lists; factors; equal bits; faults.
#include <cmath>
#include <mutex>

#include "collective/channels/collectives.h"
#include "native/collective/channels/world.h"

namespace hvd::test::collective_channels_allreduce {
namespace {

using namespace hvd::collective;
using namespace hvd::collective::channels;

struct Case {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<size_t> sizes;  // of the fused tensors
  kernels::Factors factors;
  bool in_place = true;
};

uint64_t SeedOf(uint64_t seq, size_t tensor, int member) { return seq * 1000003 + tensor * 101 + member; }

// One rank's part of a case; compares with what one thread computes from all members' inputs.
void RunCase(ChannelWorld& world, const Group& group, uint64_t seq, const Case& c) {
  Batch batch;
  batch.seq = seq;
  batch.dtype = c.dtype;
  batch.op = c.op;
  batch.prescale = c.factors.pre;
  batch.postscale = c.factors.post;
  std::vector<Bytes> inputs, outputs;
  for (size_t i = 0; i < c.sizes.size(); ++i) {
    inputs.push_back(ExactElements(c.dtype, c.sizes[i], SeedOf(seq, i, group.index)));
    outputs.push_back(c.in_place ? Bytes() : Bytes(inputs[i].size()));
  }
  for (size_t i = 0; i < c.sizes.size(); ++i) {
    std::byte* out = c.in_place ? inputs[i].data() : outputs[i].data();
    batch.tensors.push_back(MakeTensor(inputs[i].data(), out, {static_cast<int64_t>(c.sizes[i])}));
  }
  EXPECT_OK(world.Drive(group.ranks[group.index], seq, Allreduce(group, batch)));
  EXPECT_EQ(batch.waiting_for, -1);
  for (size_t i = 0; i < c.sizes.size(); ++i) {
    std::vector<Bytes> all;
    for (int m = 0; m < group.size(); ++m) all.push_back(ExactElements(c.dtype, c.sizes[i], SeedOf(seq, i, m)));
    EXPECT(Combine(c.dtype, c.op, c.factors, all) == (c.in_place ? inputs[i] : outputs[i]));
    if (!c.in_place) EXPECT(inputs[i] == all[group.index]);
  }
}

void RunCases(std::vector<int> hosts, Link link, bool share, const std::vector<Case>& cases) {
  ChannelWorld world(std::move(hosts), link, share);
  RanksAsThreads(world.size(), [&](int rank) {
    const auto side = world.MakeGroup(rank);
    uint64_t seq = 0;
    for (const Case& c : cases) RunCase(world, side->group, ++seq, c);
  });
}

std::vector<size_t> SizesFor(int n) {
  const size_t k = static_cast<size_t>(n);
  return {0, 1, k - 1, k, k + 1, 1000};
}

TEST(channel_allreduce_all_types_and_operations) {
  for (int n = 1; n <= 8; ++n) {
    std::vector<Case> cases;
    for (const DType dtype : AllDTypes()) {
      for (const ReduceOp op : ElementwiseOps()) {
        for (const size_t size : SizesFor(n)) cases.push_back({dtype, op, {size}, {}, (size + n) % 2 == 0});
      }
    }
    RunCases(Apart(n), Link::kMemory, false, cases);
  }
}

TEST(channel_allreduce_large) {
  for (int n = 1; n <= (kThreadSanitizer ? 4 : 8); ++n) {
    RunCases(Apart(n), Link::kShort, false,
             {{DType::kFloat32, ReduceOp::kSum, {100003}, {}, true},
              {DType::kBfloat16, ReduceOp::kSum, {100003}, {}, false},
              {DType::kFloat64, ReduceOp::kMax, {200003}, {}, true}});
  }
}

TEST(channel_allreduce_through_tiny_channels) {
  for (int n = 2; n <= 5; ++n) {
    RunCases(
        Apart(n), Link::kTiny, false,
        {{DType::kInt16, ReduceOp::kSum, {1000}, {}, true}, {DType::kFloat32, ReduceOp::kSum, {3, 0, 50}, {}, false}});
  }
}

TEST(channel_allreduce_over_sockets) {
  for (const Link link : {Link::kSocket, Link::kTcp}) {
    for (const int n : {2, 3, 4, 7}) {
      RunCases(Apart(n), link, false,
               {{DType::kFloat32, ReduceOp::kSum, {1}, {}, true},
                {DType::kFloat32, ReduceOp::kSum, {1000, 30000}, {}, false},
                {DType::kFloat16, ReduceOp::kSum, {100003}, {}, true},
                {DType::kFloat32, ReduceOp::kSum, {600011}, {}, true}});
    }
  }
}

// Ranks of one host, through the byte rings of their arenas; and hosts that are not consecutive in rank order.
TEST(channel_allreduce_over_rings) {
  const std::vector<Case> cases = {{DType::kFloat32, ReduceOp::kSum, {1}, {}, true},
                                   {DType::kInt32, ReduceOp::kSum, {1000, 30000}, {}, false},
                                   {DType::kFloat32, ReduceOp::kSum, {600011}, {}, true}};
  for (const int n : {2, 3, 5}) RunCases(std::vector<int>(n, 0), Link::kMemory, true, cases);
  RunCases({0, 1, 0, 1}, Link::kTcp, true, cases);
}

TEST(channel_allreduce_fused_lists) {
  std::vector<size_t> many;
  for (size_t i = 0; i < 120; ++i) many.push_back(i * 37 % 1500);
  const std::vector<Case> cases = {{DType::kFloat32, ReduceOp::kSum, {5, 0, 1, 700, 0}, {}, true},
                                   {DType::kFloat32, ReduceOp::kSum, many, {}, true},
                                   {DType::kFloat16, ReduceOp::kMin, many, {}, false},
                                   {DType::kUint8, ReduceOp::kSum, {100000, 3, 100000}, {}, false},
                                   {DType::kFloat32, ReduceOp::kSum, {70000, 3, 1, 70000}, {}, true},
                                   {DType::kFloat32, ReduceOp::kSum, {}, {}, true}};
  for (const int n : {1, 2, 3, 4, 6, 8}) RunCases(Apart(n), Link::kMemory, false, cases);
}

TEST(channel_allreduce_factors) {
  for (const int n : {1, 2, 3, 4, 5}) {
    std::vector<Case> cases;
    for (const size_t size : {size_t{7}, size_t{20000}, size_t{100003}}) {
      for (const bool in_place : {false, true}) {
        cases.push_back({DType::kFloat32, ReduceOp::kSum, {size, 11}, {0.5, 4.0}, in_place});
        cases.push_back({DType::kFloat16, ReduceOp::kMax, {size}, {-0.5, 1.0}, in_place});
        cases.push_back({DType::kFloat64, ReduceOp::kSum, {size}, {1.0, 0.25}, in_place});
        cases.push_back({DType::kInt32, ReduceOp::kSum, {size}, {1.0, 3.0}, in_place});
      }
    }
    RunCases(Apart(n), Link::kMemory, false, cases);
  }
}

// Values whose sum depends on the order of the additions: all ranks must still end with the same bits, near the exact
// sum.
TEST(channel_allreduce_equal_bits) {
  for (const int n : {2, 3, 4, 5, 7, 8}) {
    for (const size_t elems : {size_t{100}, size_t{20000}, size_t{300007}}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
        ChannelWorld world(Apart(n), Link::kMemory, false);
        std::vector<Bytes> data(n), inputs;
        for (int r = 0; r < n; ++r) inputs.push_back(data[r] = RandomElements(dtype, elems, r + 1));
        RanksAsThreads(n, [&](int rank) {
          const auto side = world.MakeGroup(rank);
          Batch batch;
          batch.seq = 1;
          batch.dtype = dtype;
          batch.tensors.push_back(MakeTensor(data[rank].data(), data[rank].data(), {static_cast<int64_t>(elems)}));
          EXPECT_OK(world.Drive(rank, 1, Allreduce(side->group, batch)));
        });
        for (int r = 1; r < n; ++r) EXPECT(data[r] == data[0]);
        if (dtype != DType::kFloat32) continue;
        const Bytes expected = Combine(dtype, ReduceOp::kSum, {}, inputs);
        for (size_t i = 0; i < elems; ++i) {
          float got, want;
          std::memcpy(&got, data[0].data() + 4 * i, 4);
          std::memcpy(&want, expected.data() + 4 * i, 4);
          if (std::abs(got - want) > 1e-5f * n)
            return Fail(__FILE__, __LINE__, "element " + std::to_string(i) + " is wrong");
        }
      }
    }
  }
}

// One rank is gone from the start or dies in the middle: its partners name it, everybody ends.
TEST(channel_allreduce_names_the_dead) {
  for (const Link link : {Link::kMemory, Link::kSocket, Link::kTcp}) {
    for (const int n : {2, 3, 4}) {
      for (const size_t elems : {size_t{10}, size_t{1000000}}) {
        ChannelWorld world(Apart(n), link, false);
        const int dead = n - 1;
        std::mutex mutex;
        bool named = false;
        RanksAsThreads(n, [&](int rank) {
          const auto side = world.MakeGroup(rank);
          std::vector<float> data(elems, 1.0f);
          auto* bytes = reinterpret_cast<std::byte*>(data.data());
          Batch batch;
          batch.seq = 1;
          batch.tensors.push_back(MakeTensor(bytes, bytes, {static_cast<int64_t>(elems)}));
          if (rank == dead) {
            Runner runner(Allreduce(side->group, batch));
            if (elems > 10) {
              for (int i = 0; i < 3; ++i) runner.Advance();
            }
            world.Kill(rank, 1);
            return;
          }
          const Status status = world.Drive(rank, 1, Allreduce(side->group, batch));
          EXPECT(status.code() == Code::kPeerLost);
          std::lock_guard<std::mutex> lock(mutex);
          named |=
              status.message().find("rank " + std::to_string(dead) + " closed the connection") != std::string::npos;
        });
        EXPECT(named);
      }
    }
  }
}

// A member that runs another batch, or another operation, is an error on the receiver and not a wrong result.
TEST(channel_collectives_check_every_header) {
  ChannelWorld world(Apart(2), Link::kMemory, false);
  RanksAsThreads(2, [&](int rank) {
    const auto side = world.MakeGroup(rank);
    std::vector<float> data(100, 1.0f);
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    Batch batch;
    batch.seq = 5 + rank;
    batch.tensors.push_back(MakeTensor(bytes, bytes, {100}));
    const Status status = world.Drive(rank, batch.seq, Allreduce(side->group, batch));
    EXPECT(!status.ok());
    // The first to look sees the wrong message; the other one may see the connection closed.
    if (status.code() == Code::kInternal) {
      const std::string expected =
          "[memory] rank " + std::to_string(1 - rank) + " sent the message (batch " + std::to_string(6 - rank);
      EXPECT(status.message().find(expected) != std::string::npos);
    } else {
      EXPECT(status.code() == Code::kPeerLost);
    }
  });
}

}  // namespace
}  // namespace hvd::test::collective_channels_allreduce
