// Tensors on GPUs that pass through the host in pieces: the same bits as tensors of the host, both directions at once,
// failures in the middle. Over the fake driver, what is not waited for is poison.
#include <atomic>

#include "native/backend/nccl/world.h"

namespace hvd::test::backend_staged_staged {
namespace {

using backend::staged::StagedFlow;

constexpr size_t kPiece = 4096;

std::atomic<uint64_t> next_seq{1};

Batch NewBatch(uint64_t seq, OpType type, DType dtype, ReduceOp op) {
  Batch batch;
  batch.seq = seq;
  batch.type = type;
  batch.dtype = dtype;
  batch.op = op;
  return batch;
}

// What passes through the host, and how: every second tensor in place.
struct Case {
  OpType type;
  DType dtype;
  ReduceOp op;
  std::vector<size_t> counts;
  double pre = 1.0, post = 1.0;
  int root = 0;
  int joined = -1;  // this rank has used no GPU and stands in with the host's memory
};

// All ranks run it on the GPU and on the host; the results are the same to the bit.
void ExpectTheHostsBits(GpuWorld& world, const Case& c) {
  const uint64_t seq = next_seq.fetch_add(6);
  RanksAsThreads(world.size(), [&](int r) {
    const auto side = world.MakeGroup(r, By::kHost);
    Batch on_gpu = NewBatch(seq, c.type, c.dtype, c.op), on_host = NewBatch(seq + 3, c.type, c.dtype, c.op);
    std::vector<Bytes> mine, results;
    for (size_t i = 0; i < c.counts.size(); ++i) {
      mine.push_back(RandomElements(c.dtype, c.counts[i], 10 * i + static_cast<size_t>(r)));
      results.push_back(mine.back());
    }
    std::vector<Bytes> joined = mine;
    for (size_t i = 0; i < c.counts.size(); ++i) {
      const std::vector<int64_t> shape = {static_cast<int64_t>(c.counts[i])};
      on_host.tensors.push_back(MakeTensor(mine[i].data(), results[i].data(), shape));
      on_gpu.tensors.push_back(r == c.joined ? MakeTensor(joined[i].data(), joined[i].data(), shape)
                                             : world.rank(r).Put(mine[i], shape, i % 2 == 0));
    }
    for (Batch* batch : {&on_gpu, &on_host}) {
      batch->prescale = c.pre;
      batch->postscale = c.post;
      batch->root = c.root;
    }
    EXPECT_OK(r == c.joined ? world.RunWithoutGpu(r, side->group, on_gpu) : world.Run(r, side->group, on_gpu));
    EXPECT_OK(world.RunOnHost(r, side->group, on_host));
    for (size_t i = 0; i < c.counts.size(); ++i)
      EXPECT((r == c.joined ? joined[i] : world.rank(r).Take(on_gpu.tensors[i], results[i].size())) == results[i]);
  });
}

TEST(staged_pieces_give_the_bits_of_the_host) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 0}, 1, kPiece);
  for (const DType dtype : AllDTypes()) {
    const size_t some = (300 << 10) / SizeOf(dtype);
    for (const ReduceOp op : ElementwiseOps())
      ExpectTheHostsBits(world, {OpType::kAllreduce, dtype, op, {some + 1, 0, 7, some / 5 + 3}});
    ExpectTheHostsBits(world, {OpType::kAllreduce, dtype, ReduceOp::kSum, {3, some, 1}, 2.0, 0.25});
  }
  GpuWorld pair({0, 0}, 1, kPiece);
  for (const DType dtype : {DType::kFloat32, DType::kFloat8E4m3fn})
    ExpectTheHostsBits(pair, {OpType::kAllreduce, dtype, ReduceOp::kAdasum, {100'003}});
}

TEST(staged_pieces_over_hosts) {
  const NoFaults no_faults;
  GpuWorld apart({0, 1, 2}, 1, kPiece), together({0, 0, 1, 1}, 1, kPiece);
  for (GpuWorld* world : {&apart, &together}) {
    ExpectTheHostsBits(*world, {OpType::kAllreduce, DType::kFloat16, ReduceOp::kSum, {150'001, 5}});
    ExpectTheHostsBits(*world, {OpType::kBroadcast, DType::kInt32, ReduceOp::kSum, {100'001, 5}, 1.0, 1.0, 1});
  }
  // Of all ranks, wherever they are.
  ExpectTheHostsBits(together, {OpType::kAllreduce, DType::kFloat32, ReduceOp::kAdasum, {10'003, 7}});
}

TEST(staged_broadcast_from_each_root) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 0}, 1, kPiece);
  for (int root = 0; root < 3; ++root) {
    for (const std::vector<size_t>& counts : {std::vector<size_t>{400'001, 0, 77, 100'000}, {5, 3}})
      ExpectTheHostsBits(world, {OpType::kBroadcast, DType::kUint8, ReduceOp::kSum, counts, 1.0, 1.0, root});
  }
}

TEST(staged_pieces_beside_a_rank_that_has_joined) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 0}, 1, kPiece);
  for (int joined = 0; joined < 3; ++joined)
    ExpectTheHostsBits(world,
                       {OpType::kAllreduce, DType::kFloat32, ReduceOp::kSum, {100'001, 3}, 1.0, 1.0 / 3, 0, joined});
}

// The results of a batch leave the pinned memory while the next one has begun.
TEST(staged_batches_close_behind_one_another) {
  const NoFaults no_faults;
  constexpr size_t kBatches = 4, kBytes = 8 * kPiece;
  GpuWorld world({0, 0}, 1, kPiece);
  const auto seq = next_seq.fetch_add(3 * kBatches);
  RanksAsThreads(2, [&](int r) {
    const auto side = world.MakeGroup(r, By::kHost);
    std::vector<Batch> batches;
    for (size_t k = 0; k < kBatches; ++k) {
      batches.push_back(NewBatch(seq + 3 * k, OpType::kAllreduce, DType::kUint8, ReduceOp::kSum));
      batches[k].tensors.push_back(world.rank(r).Put(Filled(kBytes, static_cast<int>(k) + 1), {kBytes}, false));
    }
    for (Batch& batch : batches) EXPECT_OK(world.Run(r, side->group, batch));
    for (size_t k = 0; k < kBatches; ++k)
      EXPECT(world.rank(r).Take(batches[k].tensors[0], kBytes) == Filled(kBytes, 2 * (static_cast<int>(k) + 1)));
  });
}

Status RunToItsEnd(Task task) {
  Runner runner(std::move(task));
  while (!runner.done()) runner.Advance();
  return runner.result();
}

TEST(staged_flow_sends_ahead_and_gives_back_at_once) {
  const Gpu gpu;
  NEEDS_FAKES();
  constexpr size_t kTotal = 10 * kPiece - 5;
  const auto in = gpu.NewStream(), out = gpu.NewStream();
  const auto from = gpu.Upload(Filled(kTotal, 3)), to = gpu.New(kTotal);
  backend::cuda::PinnedMemory pinned(gpu.devices().context());
  const auto room = pinned.Room(kTotal);
  EXPECT_OK(room.status());
  StagedFlow flow({gpu.devices().packing(), gpu.context(), *in, *out, nullptr}, kPiece);
  flow.Add(from->data, *room, to->data, kTotal, nullptr);
  gpu.fakes().fake_cuda_record_start();
  EXPECT_OK(RunToItsEnd(flow.Arrived(1)));
  EXPECT_EQ(gpu.fakes().LinesWith("copy to host 4096").size(), size_t{5});  // one asked for, four ahead
  EXPECT(Bytes(*room, *room + kPiece) == Filled(kPiece, 3));
  EXPECT_OK(flow.Left(kPiece - 1));
  EXPECT_EQ(gpu.fakes().LinesWith("copy to device").size(), size_t{0});  // half a piece waits
  EXPECT_OK(flow.Left(kPiece));
  EXPECT_EQ(gpu.fakes().LinesWith("copy to device 4096").size(), size_t{1});
  EXPECT_OK(RunToItsEnd(flow.Arrived(kTotal)));
  EXPECT_EQ(gpu.fakes().LinesWith("copy to host").size(), size_t{10});
  EXPECT_OK(flow.Left(kTotal));
  EXPECT_OK(out->Synchronize());
  EXPECT(gpu.Download(to->data, kTotal) == Filled(kTotal, 3));
}

// The results of the first pieces go back before the last ones have been sent for.
TEST(staged_copies_go_both_ways_at_once) {
  const NoFaults no_faults;
  NEEDS_FAKES();
  GpuWorld world({0, 0}, 1, kPiece);
  no_faults.fakes().fake_cuda_record_start();
  ExpectTheHostsBits(world, {OpType::kAllreduce, DType::kInt32, ReduceOp::kSum, {4 << 18}});
  const std::string record = no_faults.fakes().Record();
  const std::string piece = std::to_string((4 << 20) / 8);
  for (const std::string& line : {"copy to host " + piece, "copy to device " + piece})
    EXPECT_EQ(no_faults.fakes().LinesWith(line).size(), size_t{2 * 8});
  EXPECT(record.find("copy to device " + piece) < record.rfind("copy to host " + piece));
}

TEST(staged_broadcast_reads_its_root_only) {
  const NoFaults no_faults;
  NEEDS_FAKES();
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 0}, {0, 1, 1}}) {
    GpuWorld world(hosts, 1, kPiece);
    no_faults.fakes().fake_cuda_record_start();
    const auto seq = next_seq.fetch_add(3);
    RanksAsThreads(3, [&](int r) {
      const auto side = world.MakeGroup(r, By::kHost);
      Batch batch = NewBatch(seq, OpType::kBroadcast, DType::kUint8, ReduceOp::kSum);
      batch.tensors.push_back(world.rank(r).Put(Filled(8 * kPiece, r), {8 * kPiece}, true));
      EXPECT_OK(world.Run(r, side->group, batch));
    });
    EXPECT_EQ(no_faults.fakes().LinesWith("copy to host").size(), size_t{8});
  }
}

// Results whose size is known late: the driver of this rank must not wait while the device's driver copies them.
TEST(staged_results_of_rows_leave_from_pinned_memory) {
  const NoFaults no_faults;
  NEEDS_FAKES();
  GpuWorld world({0, 0, 0}, 1, kPiece);
  no_faults.fakes().fake_cuda_record_start();
  for (const OpType type : {OpType::kAllgather, OpType::kAlltoall, OpType::kReducescatter}) {
    const auto seq = next_seq.fetch_add(3);
    RanksAsThreads(3, [&](int r) {
      const auto side = world.MakeGroup(r, By::kHost);
      Batch batch = NewBatch(seq, type, DType::kInt32, ReduceOp::kSum);
      for (const int64_t rows : {300, 3000}) {
        batch.tensors.push_back(world.rank(r).Put(Filled(static_cast<size_t>(rows) * 4, 1), {rows}, true));
        batch.tensors.back().output = nullptr;
        batch.tensors.back().splits = {rows / 3, rows / 3, rows / 3};
      }
      EXPECT_OK(world.Run(r, side->group, batch));
      const size_t expected = type == OpType::kAllgather ? 3600 : type == OpType::kAlltoall ? 1200 : 400;
      const auto value = static_cast<int>(type == OpType::kReducescatter ? 3 : 1);
      EXPECT_EQ(batch.tensors[0].result->bytes, expected);
      EXPECT(world.rank(r).Take(batch.tensors[0], expected)[expected - 4] == static_cast<std::byte>(value));
    });
  }
  const Fakes& fakes = no_faults.fakes();
  // Of each batch two tensors of each rank, which the tests store there first.
  EXPECT_EQ(fakes.LinesWith("copy to device").size(), size_t{3 * 3 * 4});
  EXPECT_EQ(fakes.LinesWith("from memory that is not pinned").size(), size_t{3 * 3 * 2});
}

TEST(staged_pinned_memory_for_results_is_bounded) {
  const Gpu gpu;
  using backend::staged::PinnedResults;
  PinnedResults results(gpu.devices().context());
  for (int batch = 0; batch < 2; ++batch) {
    results.Reset();
    EXPECT(results.Give(0) == nullptr);
    const auto some = results.Give(1000), more = results.Give(10);
    EXPECT(some != nullptr && some->bytes == 1000 && more != nullptr && more->data != some->data);
    EXPECT(results.Give(PinnedResults::kMostBytes - 1009) == nullptr);
  }
  NEEDS_FAKES();
  gpu.fakes().fake_cuda_fail_next("cuMemHostAlloc", 2);
  EXPECT(results.Give(PinnedResults::kMostBytes / 2) == nullptr);  // no failure: there is other memory
  gpu.fakes().fake_cuda_fail_next("cuMemHostAlloc", 0);
}

// A copy fails in the middle: this rank fails, the others do not wait for it, and afterwards no stream stores.
TEST(staged_copy_that_fails_in_the_middle) {
  const NoFaults no_faults;
  NEEDS_FAKES();
  const auto driver = OpenDriver();
  const auto& functions = *driver;
  for (const char* function : {functions->memcpy_dtoh_async.name(), functions->memcpy_htod_async.name(),
                               functions->event_record.name(), functions->event_query.name()}) {
    GpuWorld world({0, 0, 0}, 1, kPiece);
    const auto seq = next_seq.fetch_add(3);
    std::atomic<int> failed{0}, ready{0};
    RanksAsThreads(3, [&](int r) {
      const auto side = world.MakeGroup(r, By::kHost);
      Batch batch = NewBatch(seq, OpType::kAllreduce, DType::kInt32, ReduceOp::kSum);
      batch.tensors.push_back(world.rank(r).Put(Filled(400'000, 1), {100'000}, false));
      if (++ready == 3) no_faults.fakes().fake_cuda_fail_next(function, 400);
      while (ready < 3) sched_yield();
      const Status status = world.Run(r, side->group, batch);
      if (!status.ok()) ++failed;
      world.staged(r).Abort();
    });
    no_faults.fakes().fake_cuda_fail_next(function, 0);
    EXPECT(failed >= 1);
  }
}

// The owners' next use of their tensors, in an order of their own.
void StoreInto(GpuRank& rank, const std::byte* data, const Bytes& values) {
  const auto& driver = rank.devices->context()->driver();
  EXPECT_OK(backend::cuda::CallIn(*rank.devices->context(), driver->memcpy_htod_async, AddressOf(data), values.data(),
                                  values.size(), rank.framework->handle()));
  EXPECT_OK(rank.framework->Synchronize());
}

// Who is told of a failure may do with inputs and outputs what it likes.
TEST(staged_abort_returns_when_nothing_is_under_way) {
  const NoFaults no_faults;
  NEEDS_FAKES();
  GpuWorld world({0, 0}, 1, kPiece);
  const Bytes values = Filled(400'000, 1);
  const auto seq = next_seq.fetch_add(6);
  const auto sum = [&](int r, uint64_t of) {
    Batch batch = NewBatch(of, OpType::kAllreduce, DType::kInt32, ReduceOp::kSum);
    batch.tensors.push_back(world.rank(r).Put(values, {100'000}, false));
    return batch;
  };
  RanksAsThreads(2, [&](int r) {  // the last pieces of the result are on their way
    const auto side = world.MakeGroup(r, By::kHost);
    Batch batch = sum(r, seq);
    EXPECT_OK(world.Run(r, side->group, batch));
    world.staged(r).Abort();
    StoreInto(world.rank(r), batch.tensors[0].output, values);
  });
  const auto side = world.MakeGroup(0, By::kHost);
  Batch batch = sum(0, seq + 3);
  {
    Runner runner(world.staged(0).Execute(side->group, batch));  // and without the other rank, the first of the input
    runner.Advance();
    EXPECT(!runner.done());
  }
  world.staged(0).Abort();
  StoreInto(world.rank(0), batch.tensors[0].input, values);
}

TEST(staged_peer_that_dies_in_the_middle) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 0}, 1, kPiece);
  const auto seq = next_seq.fetch_add(3);
  RanksAsThreads(3, [&](int r) {
    if (r == 1) return world.Kill(1, seq);
    const auto side = world.MakeGroup(r, By::kHost);
    Batch batch = NewBatch(seq, OpType::kAllreduce, DType::kInt32, ReduceOp::kSum);
    batch.tensors.push_back(world.rank(r).Put(Filled(400'000, 1), {100'000}, true));
    EXPECT(!world.Run(r, side->group, batch).ok());
    world.staged(r).Abort();
  });
}

}  // namespace
}  // namespace hvd::test::backend_staged_staged
