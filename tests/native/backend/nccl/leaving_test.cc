// How NCCL's backend leaves, in good order or not: what still works on the device then, and who waits for whom.
#include <limits>
#include <new>

#include "base/monotonic.h"
#include "native/backend/nccl/world.h"

namespace hvd::test::backend_nccl_leaving {
namespace {

// One tensor of a collective that every member sums, or gets from member 1.
class One {
 public:
  One(GpuWorld& world, int r, OpType type, uint64_t seq) : side(world.MakeGroup(r, By::kNccl)) {
    batch.seq = seq;
    batch.type = type;
    batch.dtype = DType::kInt32;
    batch.root = type == OpType::kBroadcast ? 1 : 0;
    batch.on_device = true;
    batch.tensors.push_back(world.rank(r).Put(Filled(4000, 1), {1000}, /*in_place=*/true));
  }
  std::unique_ptr<GroupSide> side;
  Batch batch;
};

Status Launch(GpuWorld& world, int r, One& one) { return world.Run(r, one.side->group, one.batch); }

void SumOnce(GpuWorld& world) {
  RanksAsThreads(world.size(), [&](int r) {
    One sum(world, r, OpType::kAllreduce, 3);
    EXPECT_OK(Launch(world, r, sum));
    EXPECT(world.rank(r).Take(sum.batch.tensors[0], 4)[0] == static_cast<std::byte>(world.size()));
  });
}

// A way that NCCL has not taken yet is connected in the call, which waits for the other member. The caller need not.
TEST(gpu_abort_ends_a_call_that_waits_for_another_rank) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  GpuWorld world({0, 0});
  SumOnce(world);
  One one(world, 0, OpType::kBroadcast, 6);
  const double begin = MonotonicS();
  {
    Runner runner(world.rank(0).nccl.Execute(one.side->group, one.batch));
    for (int i = 0; i < 1000; ++i) runner.Advance();
    EXPECT(!runner.done());
  }
  world.rank(0).nccl.Abort();
  EXPECT(MonotonicS() - begin < 3);
  EXPECT_EQ(no_faults.fakes().fake_nccl_operations(), 0);
}

// NCCL's way hangs on the operation and on the size, not on one of them alone.
void ExpectNewCall(ReduceOp op, int64_t elems, bool is_new) {
  GpuWorld world({0, 0});
  SumOnce(world);
  One one(world, 0, OpType::kAllreduce, 6);
  one.batch.op = op;
  one.batch.tensors[0] = world.rank(0).Put(Filled(4 * static_cast<size_t>(elems), 1), {elems}, /*in_place=*/true);
  {
    Runner runner(world.rank(0).nccl.Execute(one.side->group, one.batch));
    for (int i = 0; i < 1000; ++i) runner.Advance();
    EXPECT_EQ(runner.done(), !is_new);
    EXPECT_EQ(one.batch.awaits_device, is_new);
  }
  world.rank(0).nccl.Abort();
}

TEST(gpu_calls_that_are_new_never_wait_in_the_driver) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  ExpectNewCall(ReduceOp::kSum, 1000, /*is_new=*/false);
  ExpectNewCall(ReduceOp::kSum, 1001, /*is_new=*/true);
  ExpectNewCall(ReduceOp::kMax, 1000, /*is_new=*/true);
}

// Its task is dropped while another thread puts it on the stream: nobody has heard of the event for its end.
TEST(gpu_abort_waits_for_what_was_on_its_way) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  GpuWorld world({0, 0});
  SumOnce(world);
  GpuRank& rank = world.rank(0);
  One one(world, 0, OpType::kBroadcast, 6), other(world, 1, OpType::kBroadcast, 6);
  no_faults.fakes().fake_cuda_stall(1);
  {
    Runner runner(rank.nccl.Execute(one.side->group, one.batch));
    runner.Advance();
    EXPECT(!runner.done());
    EXPECT_OK(Launch(world, 1, other));
    while (no_faults.fakes().fake_nccl_operations() < 2) sched_yield();
  }
  no_faults.fakes().fake_cuda_stall(0);
  rank.nccl.Abort();
  // Its owner has been told, and reads it in an order of its own.
  Bytes found(4000);
  const auto& driver = rank.devices->context()->driver();
  EXPECT_OK(backend::cuda::CallIn(*rank.devices->context(), driver->memcpy_dtoh_async, found.data(),
                                  AddressOf(one.batch.tensors[0].output), found.size(), rank.framework->handle()));
  EXPECT_OK(rank.framework->Synchronize());
}

// What has ended counts as progress, also when the next launch is who sees it.
TEST(gpu_patience_begins_anew_with_everything_that_ends) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  GpuWorld world({0, 0});
  SumOnce(world);
  std::vector<std::unique_ptr<One>> ones;
  for (const int step : {0, 1, 2}) {
    for (const int r : {0, 1}) ones.push_back(std::make_unique<One>(world, r, OpType::kAllreduce, 6 + 3 * step));
  }
  no_faults.fakes().fake_cuda_stall(1);
  for (const int k : {0, 1, 2}) EXPECT_OK(Launch(world, k % 2, *ones[k]));  // the second one on rank 0 alone
  no_faults.fakes().fake_cuda_stall(0);
  while (!ones[0]->batch.tensors[0].device->ready->Reached()) sched_yield();
  const double ended_at = MonotonicS();
  EXPECT_OK(Launch(world, 0, *ones[4]));
  EXPECT(world.rank(0).nccl.next_check(1) >= ended_at + 20);
  for (const int k : {3, 5}) EXPECT_OK(Launch(world, 1, *ones[k]));
  for (const int k : {4, 5}) (void)world.rank(k % 2).Take(ones[k]->batch.tensors[0], 4);
}

// A GPU that stands still takes no more than fits: then a batch waits, and who waits can still abort.
TEST(gpu_launches_no_more_than_its_queue_takes) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  GpuWorld world({0, 0});
  SumOnce(world);
  std::vector<std::unique_ptr<One>> of[2];
  for (const int r : {0, 1}) {
    for (int k = 0; k < 100; ++k)
      of[r].push_back(std::make_unique<One>(world, r, OpType::kAllreduce, static_cast<uint64_t>(6 + 3 * k)));
  }
  const auto begin = [&](size_t k) {
    auto runner = std::make_unique<Runner>(world.rank(0).nccl.Execute(of[0][k]->side->group, of[0][k]->batch));
    runner->Advance();
    return runner;
  };
  no_faults.fakes().fake_cuda_stall(1);
  size_t last = 0;
  std::unique_ptr<Runner> runner = begin(last);
  while (runner->done() && last < 99) runner = begin(++last);
  EXPECT(last > 20 && last < 99);
  EXPECT(of[0][last]->batch.awaits_device);
  no_faults.fakes().fake_cuda_stall(0);
  for (size_t k = 0; k <= last; ++k) EXPECT_OK(Launch(world, 1, *of[1][k]));  // lets the first rank's GPU get on
  while (!runner->done()) runner->Advance();
  EXPECT_OK(runner->result());
  EXPECT(!of[0][last]->batch.awaits_device);
  for (const int r : {0, 1}) EXPECT(world.rank(r).Take(of[r][last]->batch.tensors[0], 4)[0] == std::byte{2});
}

// The tensors of one batch that come into being one by one are more than a queue takes.
TEST(gpu_one_batch_waits_for_its_inputs_bit_by_bit) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  constexpr size_t kTensors = 700;
  GpuWorld world({0, 0});
  SumOnce(world);
  const auto side = world.MakeGroup(0, By::kNccl), others = world.MakeGroup(1, By::kNccl);
  Batch batch[2];
  for (const int r : {0, 1}) {
    batch[r].seq = 6;
    batch[r].dtype = DType::kInt32;
    for (size_t i = 0; i < kTensors; ++i) batch[r].tensors.push_back(world.rank(r).Put(Filled(40, 1), {10}, true));
  }
  no_faults.fakes().fake_cuda_stall(1);
  no_faults.fakes().fake_cuda_record_start();
  Runner runner(world.rank(0).nccl.Execute(side->group, batch[0]));
  while (no_faults.fakes().LinesWith(": wait event").size() < 4 * 128) runner.Advance();
  for (int i = 0; i < 1000; ++i) runner.Advance();
  EXPECT(!runner.done() && batch[0].awaits_device);
  EXPECT_EQ(no_faults.fakes().LinesWith(": wait event").size(), size_t{4 * 128});
  no_faults.fakes().fake_cuda_stall(0);
  RanksAsThreads(2, [&](int r) {
    if (r == 1) EXPECT_OK(world.Run(1, others->group, batch[1]));
    while (r == 0 && !runner.done()) runner.Advance();
  });
  EXPECT_OK(runner.result());
  EXPECT(!batch[0].awaits_device);
  for (const int r : {0, 1}) {
    for (const Tensor& t : batch[r].tensors) EXPECT(world.rank(r).Take(t, 40)[0] == std::byte{2});
  }
}

// NCCL frees communicators of one host together. A rank that leaves first goes on all the same.
TEST(gpu_leaving_does_not_wait_for_others_for_ever) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  {
    GpuWorld world({0, 0});
    SumOnce(world);
    no_faults.fakes().fake_nccl_leave_together(1);
  }
  while (no_faults.fakes().fake_nccl_communicators() > 0) sched_yield();
  no_faults.fakes().fake_nccl_leave_together(0);
}

// A launch without the others stands still: the device is given its time, then that is a failure, and an abort ends it.
TEST(gpu_work_that_stands_still_is_noticed_and_aborted) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  GpuWorld world({0, 0});
  SumOnce(world);
  GpuRank& rank = world.rank(0);
  One both(world, 0, OpType::kAllreduce, 6), others(world, 1, OpType::kAllreduce, 6),
      alone(world, 0, OpType::kAllreduce, 9);
  no_faults.fakes().fake_cuda_stall(1);
  EXPECT_OK(Launch(world, 0, both));
  EXPECT_OK(Launch(world, 1, others));
  EXPECT_OK(Launch(world, 0, alone));
  no_faults.fakes().fake_cuda_stall(0);
  while (!both.batch.tensors[0].device->ready->Reached()) sched_yield();
  const double begin = MonotonicS() + 1000;
  EXPECT_OK(rank.nccl.CheckDevices(begin, 100));
  EXPECT_EQ(rank.nccl.next_check(1), begin + 20);  // the first one has ended
  EXPECT_OK(rank.nccl.CheckDevices(begin + 19, 1));
  const Status late = rank.nccl.CheckDevices(begin + 20, 1);
  EXPECT(late.code() == Code::kTimeout);
  EXPECT(Contains(late, OverHip() ? "RCCL: an operation on the GPU" : "NCCL: an operation on the GPU"));
  EXPECT(Contains(late, "(allreduce) has made no progress for 20 s"));
  rank.nccl.Abort();
  EXPECT(alone.batch.tensors[0].device->ready->Reached());
  EXPECT(rank.nccl.next_check(1) > 1e18);
}

TEST(gpu_leaving_in_good_order_lets_the_device_work) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  auto world = std::make_unique<GpuWorld>(std::vector<int>{0, 0});
  SumOnce(*world);
  const auto devices = world->rank(0).devices;
  const auto block = devices->Allocate(4000);
  EXPECT_OK(block.status());
  std::shared_ptr<DeviceEvent> ready;
  {
    One mine(*world, 0, OpType::kAllreduce, 6), others(*world, 1, OpType::kAllreduce, 6);
    mine.batch.tensors[0].output = (*block)->data;
    no_faults.fakes().fake_cuda_stall(1);
    EXPECT_OK(Launch(*world, 0, mine));
    EXPECT_OK(Launch(*world, 1, others));
    ready = mine.batch.tensors[0].device->ready;
    no_faults.fakes().fake_cuda_stall(0);
    backend::nccl::Queues& queues = *world->rank(0).queues;
    queues.~Queues();  // and nothing else
    new (&queues) backend::nccl::Queues();
  }
  while (!ready->Reached()) sched_yield();
  Bytes found(4000);
  const auto stream = std::move(*Stream::Make(devices->events()));
  const auto& driver = devices->context()->driver();
  EXPECT_OK(backend::cuda::CallIn(*devices->context(), driver->memcpy_dtoh_async, found.data(),
                                  AddressOf((*block)->data), found.size(), stream->handle()));
  EXPECT_OK(stream->Synchronize());
  EXPECT(found == Filled(4000, 2));
}

// Factors as programs come by them: a NaN is one of its own, and new ones in every step are not kept.
TEST(gpu_factors_of_sums_are_distinguished_and_do_not_pile_up) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  GpuRank rank(0, nullptr, nullptr, 1);
  auto id = rank.library->NewId();
  EXPECT_OK(id.status());
  auto begun = backend::nccl::Member::Begin(rank.library, rank.devices->context(), {1, 0, *id, 0});
  EXPECT_OK(begun.status());
  Runner settled((*begun)->Ready());
  while (!settled.done()) settled.Advance();
  EXPECT_OK(settled.result());
  const auto sum = [&](double factor) { return *(*begun)->ScaledSum(DType::kFloat32, factor); };
  const int none = sum(std::numeric_limits<double>::quiet_NaN()), quarter = sum(0.25);
  EXPECT(none != quarter);
  EXPECT_EQ(sum(0.25), quarter);
  EXPECT_EQ(sum(std::numeric_limits<double>::quiet_NaN()), none);
  for (int step = 1; step <= 1000; ++step) (void)sum(1.0 / (1 + step));
  EXPECT(no_faults.fakes().fake_nccl_scaled_sums() <= 100);
}

}  // namespace
}  // namespace hvd::test::backend_nccl_leaving
