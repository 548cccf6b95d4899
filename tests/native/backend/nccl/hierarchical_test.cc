// Allreduce on GPUs in two levels: NCCL inside each host, the host's ways between them. As in collectives_test.cc,
// tensors come into being late and results are looked at as soon as they are said to be ready.
#include <atomic>
#include <random>

#include "native/backend/nccl/world.h"

namespace hvd::test {
namespace {

std::atomic<uint64_t> next_seq{1};

struct Sum {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<size_t> counts;
  collective::kernels::Factors factors = {};
  int hierarchical = -1;
};

// Sums that come one behind the other, without a look at one before all have been launched.
class Sums {
 public:
  Sums(GpuWorld& world, std::vector<Sum> sums) : world_(world), sums_(std::move(sums)) {
    for (const Sum& sum : sums_) {
      first_seq_.push_back(next_seq += 3);
      inputs_.emplace_back();
      for (size_t i = 0; i < sum.counts.size(); ++i) {
        std::vector<Bytes> of_ranks;
        for (int r = 0; r < world.size(); ++r) {
          const uint64_t seed = 1000 * inputs_.size() + 100 * i + r;
          of_ranks.push_back(IsFloat(sum.dtype) ? ExactElements(sum.dtype, sum.counts[i], seed)
                                                : RandomElements(sum.dtype, sum.counts[i], seed));
        }
        inputs_.back().push_back(std::move(of_ranks));
      }
    }
  }

  void Run(By by) {
    RanksAsThreads(world_.size(), [&](int r) {
      const auto side = world_.MakeGroup(r, by);
      std::vector<Batch> batches(sums_.size());
      for (size_t s = 0; s < sums_.size(); ++s) EXPECT_OK(Launch(r, side->group, s, &batches[s]));
      for (size_t s = 0; s < sums_.size(); ++s) Check(r, s, batches[s]);
    });
  }

 private:
  Status Launch(int r, const Group& group, size_t s, Batch* batch) {
    const Sum& sum = sums_[s];
    batch->seq = first_seq_[s];
    batch->dtype = sum.dtype;
    batch->op = sum.op;
    batch->prescale = sum.factors.pre;
    batch->postscale = sum.factors.post;
    batch->hierarchical = sum.hierarchical;
    for (size_t i = 0; i < sum.counts.size(); ++i)
      batch->tensors.push_back(
          world_.rank(r).Put(inputs_[s][i][r], {static_cast<int64_t>(sum.counts[i])}, (s + i) % 2 == 0));
    return world_.Run(r, group, *batch);
  }
  void Check(int r, size_t s, const Batch& batch) {
    for (size_t i = 0; i < sums_[s].counts.size(); ++i) {
      const Bytes expected = Combine(sums_[s].dtype, sums_[s].op, sums_[s].factors, inputs_[s][i]);
      EXPECT(world_.rank(r).Take(batch.tensors[i], expected.size()) == expected);
    }
  }

  GpuWorld& world_;
  const std::vector<Sum> sums_;
  std::vector<uint64_t> first_seq_;
  std::vector<std::vector<std::vector<Bytes>>> inputs_;  // by sum, tensor, rank
};

void RunSum(GpuWorld& world, By by, Sum sum) { Sums(world, {std::move(sum)}).Run(by); }

Group SeenBy(GpuWorld& world, By by) { return world.MakeGroup(0, by)->group; }

TEST(gpu_hierarchical_allreduce_of_every_type_and_operation) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 1, 1});
  for (const DType dtype : AllDTypes()) {
    for (const ReduceOp op : LinearOps()) RunSum(world, By::kBoth, {dtype, op, {7, 0, 1003}});
    RunSum(world, By::kBoth, {dtype, ReduceOp::kSum, {100, 33}, {2.0, 0.25}});
  }
  RunSum(world, By::kBoth, {DType::kFloat32, ReduceOp::kSum, {1}});
  RunSum(world, By::kBoth, {DType::kFloat32, ReduceOp::kSum, {0, 0}});
}

// Members of a host that are not next to one another, and whose counterparts do not come in the hosts' order.
TEST(gpu_hierarchical_allreduce_wherever_the_members_are) {
  const NoFaults no_faults;
  for (const std::vector<int>& hosts :
       {std::vector<int>{0, 1, 0, 1}, {0, 1, 1, 0}, {0, 0, 1, 1, 2, 2}, {0, 0, 0, 4, 4, 4}}) {
    GpuWorld world(hosts);
    EXPECT_EQ(world.rank(0).hierarchical.Unsupported(SeenBy(world, By::kBoth), Batch()), "");
    RunSum(world, By::kBoth, {DType::kInt64, ReduceOp::kSum, {1000, 5}});
    RunSum(world, By::kBoth, {DType::kFloat16, ReduceOp::kSum, {1000, 5}});
  }
}

// The buffers of one batch are those of the next.
TEST(gpu_hierarchical_batches_one_behind_the_other) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 1, 1});
  std::vector<Sum> sums;
  for (const size_t count : {10u, 400'000u, 17u, 1'300'000u, 3u, 1'300'000u})
    sums.push_back({DType::kInt32, ReduceOp::kSum, {count, count / 2}});
  Sums(world, std::move(sums)).Run(By::kBoth);
}

// Where NCCL can between all members, both ways are taken in turn, on one stream of it.
TEST(gpu_hierarchical_and_flat_batches_in_turn) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 1, 1});
  std::vector<Sum> sums;
  for (int i = 0; i < 8; ++i) sums.push_back({DType::kInt32, ReduceOp::kSum, {1000, 77}, {}, i % 2});
  Sums(world, std::move(sums)).Run(By::kEither);
}

TEST(gpu_hierarchical_is_chosen_when_asked_for_or_needed) {
  GpuWorld world({0, 0, 1, 1});
  const auto why_not = [&](By by, int hierarchical, OpType type = OpType::kAllreduce) {
    Batch batch;
    batch.type = type;
    batch.hierarchical = hierarchical;
    return world.rank(0).hierarchical.Unsupported(SeenBy(world, by), batch);
  };
  EXPECT_EQ(why_not(By::kBoth, -1), "");
  EXPECT_EQ(why_not(By::kBoth, 1), "");
  EXPECT_EQ(why_not(By::kBoth, 0), "HOROVOD_HIERARCHICAL_ALLREDUCE=0 forbids it");
  EXPECT_EQ(why_not(By::kEither, -1), "NCCL reduces between all members at once");
  EXPECT_EQ(why_not(By::kEither, 1), "");
  EXPECT_EQ(why_not(By::kNccl, 1), "the test does not want it");
  EXPECT_EQ(why_not(By::kHost, -1), "the test does not want it");
  EXPECT_EQ(why_not(By::kBoth, 1, OpType::kBroadcast), "two levels are for allreduce");
}

// What a rank is told when one step fails on it, or on its counterpart.
Status Failing(const char* function) {
  GpuWorld world({0, 0, 1, 1});
  RunSum(world, By::kBoth, {DType::kInt32, ReduceOp::kSum, {10}});
  const Fakes fakes;
  Status failed;
  RanksAsThreads(1, [&](int) {
    const auto side = world.MakeGroup(0, By::kBoth);
    Batch batch;
    batch.seq = next_seq += 3;
    batch.dtype = DType::kInt32;
    batch.tensors.push_back(world.rank(0).Put(Bytes(40), {10}, true));
    fakes.fake_nccl_fail_next(function, 3);
    failed = world.Run(0, side->group, batch);
  });
  world.rank(0).queues->Abort();
  return failed;
}

TEST(gpu_hierarchical_a_step_inside_that_fails_is_named) {
  EXPECT_EQ(Failing("ncclReduceScatter").message().find("ncclReduceScatter of NCCL"), 0u);
}

// A counterpart that has gone is noticed between the hosts; its own host's members wait until they are told.
TEST(gpu_hierarchical_a_counterpart_that_has_gone_is_named) {
  GpuWorld world({0, 0, 1, 1});
  RunSum(world, By::kBoth, {DType::kInt32, ReduceOp::kSum, {10}});
  const uint64_t seq = next_seq += 3;
  std::vector<Status> ended(4);
  RanksAsThreads(4, [&](int r) {
    if (r >= 2) return world.Kill(r, seq);
    const auto side = world.MakeGroup(r, By::kBoth);
    Batch batch;
    batch.seq = seq;
    batch.dtype = DType::kInt32;
    batch.tensors.push_back(world.rank(r).Put(Bytes(40), {10}, true));
    ended[r] = world.Run(r, side->group, batch);
    world.rank(r).queues->Abort();
  });
  for (int r = 0; r < 2; ++r) {
    EXPECT(ended[r].code() == Code::kPeerLost);
    EXPECT(ended[r].message().find("rank " + std::to_string(r + 2)) != std::string::npos);
  }
}

TEST(gpu_batches_take_the_streams_in_turn) {
  const NoFaults no_faults;
  const int before = no_faults.fakes().fake_nccl_communicators();
  GpuWorld world({0, 0, 1}, /*streams=*/3);
  std::vector<Sum> sums;
  for (int i = 0; i < 7; ++i) sums.push_back({DType::kInt32, ReduceOp::kSum, {1000, 77u + i}});
  Sums(world, std::move(sums)).Run(By::kNccl);
  EXPECT_EQ(no_faults.fakes().fake_nccl_communicators() - before, 3 * 3);
}

}  // namespace
}  // namespace hvd::test
