// Broadcast on GPUs in two levels: NCCL inside each host, the host's ways between them. As in hierarchical_test.cc,
// tensors come into being late and results are looked at as soon as they are said to be ready.
#include <atomic>

#include "native/backend/nccl/world.h"

namespace hvd::test::backend_nccl_hierarchical_broadcast {
namespace {

std::atomic<uint64_t> next_seq{1};

struct Sent {
  int root = 0;
  std::vector<size_t> counts;
  DType dtype = DType::kFloat32;
  bool summed = false;  // an allreduce instead
};

Batch BatchOf(GpuWorld& world, int r, const Sent& sent, uint64_t seq) {
  Batch batch;
  batch.seq = seq;
  batch.type = sent.summed ? OpType::kAllreduce : OpType::kBroadcast;
  batch.dtype = sent.dtype;
  batch.root = sent.summed ? 0 : sent.root;
  for (size_t i = 0; i < sent.counts.size(); ++i) {
    const Bytes mine = ExactElements(sent.dtype, sent.counts[i], 100 * i + r);
    batch.tensors.push_back(world.rank(r).Put(mine, {static_cast<int64_t>(sent.counts[i])}, (seq / 3 + i) % 2 == 0));
  }
  return batch;
}

void Check(GpuWorld& world, int r, const Sent& sent, const Batch& batch) {
  for (size_t i = 0; i < sent.counts.size(); ++i) {
    std::vector<Bytes> inputs;
    for (int m = 0; m < world.size(); ++m) inputs.push_back(ExactElements(sent.dtype, sent.counts[i], 100 * i + m));
    const Bytes expected = sent.summed ? Combine(sent.dtype, ReduceOp::kSum, {}, inputs) : inputs[sent.root];
    EXPECT(world.rank(r).Take(batch.tensors[i], expected.size()) == expected);
  }
}

// One behind the other, without a look at one before all have been launched.
void Run(GpuWorld& world, const std::vector<Sent>& all) {
  const uint64_t first = next_seq.fetch_add(3 * all.size());
  RanksAsThreads(world.size(), [&](int r) {
    const auto side = world.MakeGroup(r, By::kBoth);
    std::vector<Batch> batches;
    for (size_t k = 0; k < all.size(); ++k) {
      batches.push_back(BatchOf(world, r, all[k], first + 3 * k));
      EXPECT_EQ(world.rank(r).hierarchical.Unsupported(side->group, batches[k]), "");
    }
    for (Batch& batch : batches) EXPECT_OK(world.Run(r, side->group, batch));
    for (size_t k = 0; k < all.size(); ++k) Check(world, r, all[k], batches[k]);
  });
}

TEST(gpu_hierarchical_broadcast_of_every_type_and_size) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 1, 1});
  for (const DType dtype : AllDTypes()) Run(world, {{1, {7, 0, 1003}, dtype}, {2, {64, 33}, dtype}});
  for (const size_t count : {0, 1, 63, 64, 65, 127, 128, 129}) Run(world, {{3, {count}, DType::kFloat32}});
  Run(world, {{0, {0, 0}}});
}

// Roots with any local index, members of a host that are not next to one another, and counterparts that do not come in
// the hosts' order.
TEST(gpu_hierarchical_broadcast_from_each_root_wherever_the_members_are) {
  const NoFaults no_faults;
  for (const std::vector<int>& hosts :
       {std::vector<int>{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 0, 0, 4, 4, 4}, {2, 0, 1, 1, 0, 2}}) {
    GpuWorld world(hosts);
    for (int root = 0; root < world.size(); ++root) Run(world, {{root, {1000, 5}, DType::kInt64}});
  }
}

// The buffers of one batch are those of the next, whatever it does; and a root's host is through with them early.
TEST(gpu_hierarchical_broadcasts_and_sums_one_behind_the_other) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 1, 1});
  std::vector<Sent> all;
  constexpr size_t large = kThreadSanitizer ? 400'000 : 1'300'000;
  for (const size_t count : {size_t{10}, size_t{400'000}, size_t{17}, large, size_t{3}, large}) {
    const auto root = static_cast<int>(all.size() % 4);
    all.push_back({root, {count, count / 2}, DType::kInt32});
    all.push_back({0, {count / 3}, DType::kInt32, /*summed=*/true});
    all.push_back({3 - root, {count}, DType::kInt32});
  }
  Run(world, all);
}

// A share that the device has not taken from pinned memory yet is not overwritten by the next one.
TEST(gpu_hierarchical_broadcast_waits_for_its_place_in_pinned_memory) {
  const NoFaults no_faults;
  NEEDS_FAKES();
  GpuWorld world({0, 0, 1, 1});
  Run(world, {{0, {10}}});
  const std::vector<Sent> sent = {{0, {50}}, {1, {60}}};
  const uint64_t first = next_seq.fetch_add(6);
  std::vector<std::unique_ptr<GroupSide>> sides;
  std::vector<std::vector<Batch>> batches(4);
  for (int r = 0; r < 4; ++r) {
    sides.push_back(world.MakeGroup(r, By::kBoth));
    for (const int k : {0, 1}) batches[r].push_back(BatchOf(world, r, sent[k], first + 3 * k));
  }
  RanksAsThreads(2, [&](int r) {
    for (Batch& batch : batches[r]) EXPECT_OK(world.Run(r, sides[r]->group, batch));
  });
  no_faults.fakes().fake_cuda_stall(1);  // all has been sent
  std::atomic<int> waiting{0};
  RanksAsThreads(2, [&](int i) {
    const int r = 2 + i;
    EXPECT_OK(world.Run(r, sides[r]->group, batches[r][0]));
    Runner runner(world.rank(r).hierarchical.Execute(sides[r]->group, batches[r][1]));
    for (int k = 0; k < 1000; ++k) runner.Advance();
    EXPECT(!runner.done());
    if (++waiting == 2) no_faults.fakes().fake_cuda_stall(0);
    while (!runner.done()) runner.Advance();
    EXPECT_OK(runner.result());
  });
  for (int r = 0; r < 4; ++r) {
    for (const int k : {0, 1}) Check(world, r, sent[k], batches[r][k]);
  }
}

// Half of it, with two members on a host: from the one host, to the other one.
TEST(gpu_hierarchical_broadcast_crosses_each_bus_once) {
  const NoFaults no_faults;
  NEEDS_FAKES();
  GpuWorld world({0, 0, 1, 1});
  const Fakes& fakes = no_faults.fakes();
  fakes.fake_cuda_record_start();
  Run(world, {{1, {100'000}, DType::kUint8}});
  const std::string share = std::to_string((50'000 + 255) / 256 * 256);
  EXPECT_EQ(fakes.LinesWith(": copy to host " + share).size(), size_t{2});
  EXPECT_EQ(fakes.LinesWith(": copy to device " + share).size(), size_t{2});
  EXPECT_EQ(fakes.LinesWith(": copy to host").size(), size_t{2 + 4});    // and the test's look at its results
  EXPECT_EQ(fakes.LinesWith(": copy to device").size(), size_t{2 + 4});  // and its inputs
}

TEST(gpu_hierarchical_broadcast_is_chosen_when_needed) {
  GpuWorld world({0, 0, 1, 1});
  const auto why_not = [&](By by, int hierarchical, int hierarchical_allgather, OpType type = OpType::kBroadcast) {
    Batch batch;
    batch.type = type;
    batch.hierarchical = hierarchical;
    batch.hierarchical_allgather = hierarchical_allgather;
    return world.rank(0).hierarchical.Unsupported(world.MakeGroup(0, by)->group, batch);
  };
  EXPECT_EQ(why_not(By::kBoth, -1, -1), "");
  EXPECT_EQ(why_not(By::kBoth, 0, 1), "");
  EXPECT_EQ(why_not(By::kBoth, -1, 0), "HOROVOD_HIERARCHICAL_ALLGATHER=0 forbids it");
  EXPECT_EQ(why_not(By::kEither, 1, 1), "NCCL broadcasts to all members at once");
  EXPECT_EQ(why_not(By::kHost, -1, -1), "the test does not want it");
  EXPECT_EQ(why_not(By::kBoth, 1, 1, OpType::kAllgather), "two levels are for allreduce and broadcast");
}

TEST(gpu_hierarchical_broadcast_a_step_that_fails_is_named) {
  const auto named = [](const std::string& function, int ranks) {
    GpuWorld world({0, 0, 1, 1});
    Run(world, {{1, {10}}});
    const uint64_t seq = next_seq += 3;
    int count = 0;
    for (const Status& status :
         RunWhereOneFails(world, function, ranks, [&](int r) { return BatchOf(world, r, {1, {10}}, seq); }))
      count += status.message().find(function + " of ") == 0 ? 1 : 0;
    return count;
  };
  EXPECT_EQ(named("ncclBroadcast", 1), 1);
  EXPECT_EQ(named("ncclAllGather", 4), 1);
}

// Of the root's host, or of another one: between the hosts that is noticed at once, and told inside.
TEST(gpu_hierarchical_broadcast_names_a_counterpart_that_has_gone) {
  for (const int root : {0, 2}) {
    GpuWorld world({0, 0, 1, 1});
    Run(world, {{1, {10}}});
    const uint64_t seq = next_seq += 3;
    std::vector<Status> ended(4);
    RanksAsThreads(4, [&](int r) {
      if (r >= 2) return world.Kill(r, seq);
      const auto side = world.MakeGroup(r, By::kBoth);
      Batch batch = BatchOf(world, r, {root, {1'000'000}}, seq);
      ended[r] = world.Run(r, side->group, batch);
      world.rank(r).queues->Abort();
    });
    for (int r = 0; r < 2; ++r) {
      EXPECT(ended[r].code() == Code::kPeerLost);
      EXPECT(Contains(ended[r], "rank " + std::to_string(r + 2)));
    }
  }
}

}  // namespace
}  // namespace hvd::test::backend_nccl_hierarchical_broadcast
