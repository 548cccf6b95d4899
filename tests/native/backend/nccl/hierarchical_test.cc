// Allreduce on GPUs in two levels: NCCL inside each host, the host's ways between them. As in collectives_test.cc,
// tensors come into being late and results are looked at as soon as they are said to be ready.
#include <atomic>
#include <mutex>
#include <set>

#include "native/backend/nccl/world.h"

namespace hvd::test::backend_nccl_hierarchical {
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
    for (const ReduceOp op : ElementwiseOps()) RunSum(world, By::kBoth, {dtype, op, {7, 0, 1003}});
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
  constexpr size_t large = kThreadSanitizer ? 400'000 : 1'300'000;
  for (const size_t count : {size_t{10}, size_t{400'000}, size_t{17}, large, size_t{3}, large})
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
  EXPECT_EQ(why_not(By::kBoth, 1, OpType::kReducescatter), "two levels are for allreduce and broadcast");
  // It is that of all ranks on every way, which sums inside the hosts would not give.
  Batch adasum;
  adasum.op = ReduceOp::kAdasum;
  adasum.hierarchical = 1;
  EXPECT_EQ(world.rank(0).hierarchical.Unsupported(SeenBy(world, By::kBoth), adasum), "NCCL has no Adasum");
}

// Stands for MPI: notes which ranks it has reduced over.
class Noting final : public backend::Backend {
 public:
  const char* name() const override { return "noting"; }
  std::string why_not() const override { return ""; }
  std::string Unsupported(const Group&, const Batch&) const override { return ""; }
  Task Execute(const Group& group, Batch& batch) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      teams_.insert(group.ranks);
    }
    EXPECT_EQ(group.ranks[group.index] % 2, group.ranks[0] % 2);
    co_return co_await host_.Execute(group, batch);
  }
  std::string ActivityName(const Group&, const Batch&) const override { return "NOTING"; }
  const std::set<std::vector<int>>& teams() const { return teams_; }

 private:
  backend::HostBackend host_;
  std::mutex mutex_;  // guards teams_
  std::set<std::vector<int>> teams_;
};

TEST(gpu_hierarchical_the_first_backend_of_the_host_goes_between_hosts) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 1, 1});
  auto noting = std::make_unique<Noting>();
  const Noting& between = *noting;
  world.backends().Add(std::move(noting));
  RunSum(world, By::kBoth, {DType::kInt32, ReduceOp::kSum, {100}});
  EXPECT(between.teams() == std::set<std::vector<int>>({{0, 2}, {1, 3}}));
}

Batch TenZeros(GpuWorld& world, int r, uint64_t seq) {
  Batch batch;
  batch.seq = seq;
  batch.dtype = DType::kInt32;
  batch.tensors.push_back(world.rank(r).Put(Bytes(40), {10}, true));
  return batch;
}

// How the ranks end when one call of NCCL fails on one of them, in their first batch or in the next one.
std::vector<Status> Failing(const std::string& function, bool first, int ranks) {
  GpuWorld world({0, 0, 1, 1});
  if (!first) RunSum(world, By::kBoth, {DType::kInt32, ReduceOp::kSum, {10}});
  const uint64_t seq = next_seq += 3;
  return RunWhereOneFails(world, function, ranks, [&](int r) { return TenZeros(world, r, seq); });
}

bool Names(const Status& status, const std::string& function) {
  return status.message().find(function + (OverHip() ? " of RCCL" : " of NCCL")) == 0;
}

TEST(gpu_hierarchical_a_step_inside_that_fails_is_named) {
  EXPECT(Names(Failing("ncclCommInitRankConfig", true, 1)[0], "ncclCommInitRankConfig"));
  EXPECT(Names(Failing("ncclReduceScatter", false, 1)[0], "ncclReduceScatter"));
  int named = 0;
  for (const Status& status : Failing("ncclAllGather", false, 4)) named += Names(status, "ncclAllGather") ? 1 : 0;
  EXPECT_EQ(named, 1);
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
    Batch batch = TenZeros(world, r, seq);
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
  EXPECT_EQ(no_faults.fakes().fake_nccl_communicators() - before, 2 * 3 * 3);
}

}  // namespace
}  // namespace hvd::test::backend_nccl_hierarchical
