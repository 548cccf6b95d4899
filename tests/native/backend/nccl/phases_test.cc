// What the backends for GPUs tell of their phases, and that they record nothing for that while nobody listens.
#include "base/monotonic.h"
#include "native/backend/nccl/world.h"

namespace hvd::test::backend_nccl_phases {
namespace {

// The fake's device is a thread, which on a loaded machine answers later than a GPU that has nothing to do.
Status Compare(DeviceClock& clock) {
  const double until = MonotonicS() + 20;
  Status compared = clock.Compare();
  while (compared.code() == Code::kTimeout && MonotonicS() < until) compared = clock.Compare();
  return compared;
}

// An operation on three tensors; returns rank 0's phases, which lie between its beginning and its end.
std::vector<std::string> PhasesOf(GpuWorld& world, By by, OpType type, double factor = 1.0, int root = 0) {
  static uint64_t seq = 0;
  seq += 3;
  std::vector<std::string> names;
  RanksAsThreads(world.size(), [&](int r) {
    const auto side = world.MakeGroup(r, by);
    GpuRank& rank = world.rank(r);
    Batch batch;
    batch.seq = seq;
    batch.type = type;
    batch.prescale = factor;
    batch.root = root;
    for (int i = 0; i < 3; ++i) batch.tensors.push_back(rank.Put(Filled(4000, 0), {1000}, true));
    const double begin = MonotonicS();
    if (r == 0) batch.phases = std::make_shared<Phases>(rank.devices->clock());
    EXPECT_OK(world.Run(r, side->group, batch));
    for (const Tensor& t : batch.tensors) (void)rank.Take(t, t.result ? 0 : 4000);
    const double end = MonotonicS();
    if (r != 0) return;
    while (!batch.phases->Ended()) std::this_thread::yield();
    EXPECT_OK(Compare(*rank.devices->clock()));
    double last[2] = {0, 0};  // of the host and of the stream
    for (const Span& span : batch.phases->Spans()) {
      names.push_back(span.name);
      double& at = last[span.stream == nullptr ? 0 : 1];
      EXPECT(at <= span.begin_s && span.begin_s <= span.end_s);
      at = span.end_s;
      const double error = std::static_pointer_cast<backend::cuda::Clock>(rank.devices->clock())->error_s() + 20e-6;
      EXPECT(begin - error <= span.begin_s && span.end_s <= end + error);
    }
  });
  return names;
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + " ";
  return text;
}

TEST(phases_of_nccl) {
  const NoFaults no_faults;
  GpuWorld world({0, 0});
  const std::string first = Joined(PhasesOf(world, By::kNccl, OpType::kAllreduce));
  EXPECT_EQ(first, "INIT_NCCL QUEUE WAIT_FOR_DATA MEMCPY_IN_FUSION_BUFFER NCCL_ALLREDUCE MEMCPY_OUT_FUSION_BUFFER ");
  EXPECT_EQ("INIT_NCCL " + Joined(PhasesOf(world, By::kNccl, OpType::kAllreduce)), first);
  EXPECT_EQ(Joined(PhasesOf(world, By::kNccl, OpType::kBroadcast)), "QUEUE WAIT_FOR_DATA NCCL_BCAST ");
}

TEST(phases_of_the_way_through_the_host) {
  const NoFaults no_faults;
  GpuWorld world({0, 0});
  const std::string expected = "QUEUE WAIT_FOR_DATA MEMCPY_IN_HOST_BUFFER GLOO_ALLREDUCE MEMCPY_OUT_HOST_BUFFER ";
  EXPECT_EQ(Joined(PhasesOf(world, By::kHost, OpType::kAllreduce)), expected);
  GpuWorld alone({0});
  EXPECT_EQ(Joined(PhasesOf(alone, By::kHost, OpType::kAllreduce, 0.5)), "QUEUE WAIT_FOR_DATA MEMCPY_ON_DEVICE ");
}

TEST(phases_of_two_levels) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 1, 1});
  EXPECT_EQ(Joined(PhasesOf(world, By::kBoth, OpType::kAllreduce)),
            "INIT_NCCL QUEUE WAIT_FOR_DATA MEMCPY_IN_FUSION_BUFFER NCCL_REDUCESCATTER MEMCPY_IN_HOST_BUFFER "
            "GLOO_ALLREDUCE MEMCPY_OUT_HOST_BUFFER NCCL_ALLGATHER MEMCPY_OUT_FUSION_BUFFER ");
  EXPECT_EQ(Joined(PhasesOf(world, By::kBoth, OpType::kBroadcast, 1.0, /*root=*/0)),
            "QUEUE WAIT_FOR_DATA MEMCPY_IN_FUSION_BUFFER NCCL_BCAST MEMCPY_IN_HOST_BUFFER GLOO_BCAST ");
  EXPECT_EQ(Joined(PhasesOf(world, By::kBoth, OpType::kBroadcast, 1.0, /*root=*/1)),
            "QUEUE WAIT_FOR_DATA NCCL_BCAST MEMCPY_IN_HOST_BUFFER GLOO_BCAST MEMCPY_OUT_FUSION_BUFFER ");
  EXPECT_EQ(Joined(PhasesOf(world, By::kBoth, OpType::kBroadcast, 1.0, /*root=*/2)),
            "QUEUE WAIT_FOR_DATA GLOO_BCAST MEMCPY_OUT_HOST_BUFFER NCCL_ALLGATHER MEMCPY_OUT_FUSION_BUFFER ");
}

TEST(phases_cost_nothing_while_nobody_listens) {
  NEEDS_FAKES();
  const Fakes fakes;
  GpuWorld world({0, 0});
  for (const By by : {By::kNccl, By::kHost}) {
    fakes.fake_cuda_record_start();
    RanksAsThreads(2, [&](int r) {
      const auto side = world.MakeGroup(r, by);
      Batch batch;
      batch.seq = by == By::kNccl ? 300 : 303;
      batch.tensors.push_back(world.rank(r).Put(Filled(4000, 0), {1000}, true));
      EXPECT_OK(world.Run(r, side->group, batch));
      (void)world.rank(r).Take(batch.tensors[0], 4000);
    });
    const std::string done = fakes.Record();
    EXPECT(done.find("record event ") != std::string::npos);
    EXPECT(done.find("timed") == std::string::npos);
  }
}

}  // namespace
}  // namespace hvd::test::backend_nccl_phases
