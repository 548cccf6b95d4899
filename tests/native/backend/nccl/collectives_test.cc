// The collectives on GPUs, by NCCL and through the host, against plainly computed results. Tensors come into being late
// and results are looked at as soon as they are said to be ready, so that a wait that is missing gives poison.
#include "collective/shm/collectives.h"

#include <atomic>

#include "base/half.h"
#include "native/backend/nccl/world.h"

namespace hvd::test::backend_nccl_collectives {
namespace {

using collective::shm::BlockOfMember;

constexpr By kByNccl = By::kNccl, kThroughHost = By::kHost;

std::atomic<uint64_t> next_seq{1};

// Whether the sum of NCCL's order is that of ours, to the bit.
bool ExactInAnyOrder(DType dtype) { return !IsFloat(dtype); }

// An allreduce of these element counts, alternately in place, on all ranks.
void RunAllreduce(GpuWorld& world, By by, DType dtype, ReduceOp op, const std::vector<size_t>& counts,
                  collective::kernels::Factors factors = {}) {
  const int n = world.size();
  const uint64_t seq = next_seq += 3;
  std::vector<std::vector<Bytes>> inputs(counts.size(), std::vector<Bytes>(n));
  std::vector<Bytes> expected;
  for (size_t i = 0; i < counts.size(); ++i) {
    for (int r = 0; r < n; ++r) {
      const uint64_t seed = 100 * i + r;
      inputs[i][r] =
          ExactInAnyOrder(dtype) ? RandomElements(dtype, counts[i], seed) : ExactElements(dtype, counts[i], seed);
    }
    expected.push_back(Combine(dtype, op, factors, inputs[i]));
  }
  RanksAsThreads(n, [&](int r) {
    const auto side = world.MakeGroup(r, by);
    Batch batch;
    batch.seq = seq;
    batch.dtype = dtype;
    batch.op = op;
    batch.prescale = factors.pre;
    batch.postscale = factors.post;
    for (size_t i = 0; i < counts.size(); ++i)
      batch.tensors.push_back(world.rank(r).Put(inputs[i][r], {static_cast<int64_t>(counts[i])}, i % 2 == 0));
    EXPECT_OK(world.Run(r, side->group, batch));
    for (size_t i = 0; i < counts.size(); ++i)
      EXPECT(world.rank(r).Take(batch.tensors[i], expected[i].size()) == expected[i]);
  });
}

TEST(gpu_allreduce_of_every_type_and_operation) {
  const NoFaults no_faults;
  for (const By by : {kByNccl, kThroughHost}) {
    GpuWorld world({0, 0, 0});
    for (const DType dtype : AllDTypes()) {
      for (const ReduceOp op : ElementwiseOps()) {
        RunAllreduce(world, by, dtype, op, {5});
        RunAllreduce(world, by, dtype, op, {7, 0, 1003});
      }
      RunAllreduce(world, by, dtype, ReduceOp::kSum, {100, 33}, {2.0, 0.25});
    }
  }
}

// 1/3 is none of float16 and bfloat16: our kernel multiplies.
TEST(gpu_allreduce_with_a_factor_that_sixteen_bits_do_not_hold) {
  const NoFaults no_faults;
  GpuWorld world({0, 0, 0});
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (const std::vector<size_t>& counts : {std::vector<size_t>{101}, {64, 65}, {0, 77}}) {
      // Equal on all ranks, so that three thirds of it, each rounded, are known.
      const uint64_t seq = next_seq += 3;
      RanksAsThreads(3, [&](int r) {
        const auto side = world.MakeGroup(r, kByNccl);
        Batch batch;
        batch.seq = seq;
        batch.dtype = dtype;
        batch.postscale = 1.0 / 3;
        for (size_t i = 0; i < counts.size(); ++i)
          batch.tensors.push_back(
              world.rank(r).Put(ExactElements(dtype, counts[i], i), {static_cast<int64_t>(counts[i])}, i % 2 == 0));
        EXPECT_OK(world.Run(r, side->group, batch));
        for (size_t i = 0; i < counts.size(); ++i) {
          const Bytes got = world.rank(r).Take(batch.tensors[i], counts[i] * 2),
                      ones = ExactElements(dtype, counts[i], i);
          for (size_t e = 0; e < counts[i]; ++e) {
            uint16_t g, o;
            std::memcpy(&g, got.data() + 2 * e, 2);
            std::memcpy(&o, ones.data() + 2 * e, 2);
            const bool half = dtype == DType::kFloat16;
            const float is = half ? FloatFromHalf(g) : FloatFromBfloat16(g);
            const float was = half ? FloatFromHalf(o) : FloatFromBfloat16(o);
            EXPECT(std::abs(is - was) <= was / 128);
          }
        }
      });
    }
  }
}

TEST(gpu_allreduce_of_large_and_small_tensors_together) {
  const NoFaults no_faults;
  GpuWorld world({0, 0});
  for (const By by : {kByNccl, kThroughHost}) {
    RunAllreduce(world, by, DType::kInt32, ReduceOp::kSum, {(4u << 20) / 4, 3, (5u << 20) / 4 + 1, 100, 1});
    RunAllreduce(world, by, DType::kFloat32, ReduceOp::kSum, std::vector<size_t>(400, 17));
  }
}

TEST(gpu_collectives_over_hosts) {
  const NoFaults no_faults;
  for (const By by : {kByNccl, kThroughHost}) {
    GpuWorld world({0, 0, 1});
    RunAllreduce(world, by, DType::kInt64, ReduceOp::kSum, {1000, 5});
    RunAllreduce(world, by, DType::kFloat32, ReduceOp::kMax, {10});
  }
}

// rows[member]
void RunAllgather(GpuWorld& world, By by, const std::vector<size_t>& rows) {
  const uint64_t seq = next_seq += 3;
  std::vector<Bytes> inputs;
  Bytes expected;
  for (int m = 0; m < world.size(); ++m) {
    inputs.push_back(RandomElements(DType::kInt16, rows[m] * 3, m));
    expected.insert(expected.end(), inputs[m].begin(), inputs[m].end());
  }
  RanksAsThreads(world.size(), [&](int r) {
    const auto side = world.MakeGroup(r, by);
    Batch batch;
    batch.seq = seq;
    batch.type = OpType::kAllgather;
    batch.dtype = DType::kInt16;
    for (int i = 0; i < 2; ++i) {
      batch.tensors.push_back(world.rank(r).Put(inputs[r], {static_cast<int64_t>(rows[r]), 3}, true));
      batch.tensors.back().output = nullptr;
    }
    EXPECT_OK(world.Run(r, side->group, batch));
    for (const Tensor& t : batch.tensors) {
      EXPECT_EQ(t.result->bytes, expected.size());
      EXPECT(world.rank(r).Take(t, expected.size()) == expected);
      EXPECT(t.received_rows == std::vector<int64_t>(rows.begin(), rows.end()));
    }
  });
}

TEST(gpu_allgather_of_even_and_uneven_rows) {
  const NoFaults no_faults;
  for (const By by : {kByNccl, kThroughHost}) {
    GpuWorld world({0, 0, 0});
    RunAllgather(world, by, {2, 2, 2});
    RunAllgather(world, by, {2, 0, 5});
    RunAllgather(world, by, {0, 0, 0});
    RunAllgather(world, by, {0, 50'000, 1});
  }
}

TEST(gpu_broadcast_from_each_root) {
  const NoFaults no_faults;
  for (const By by : {kByNccl, kThroughHost}) {
    GpuWorld world({0, 0, 0});
    for (int root = 0; root < 3; ++root) {
      const uint64_t seq = next_seq += 3;
      const Bytes expected = RandomElements(DType::kUint8, 1001, root);
      RanksAsThreads(3, [&](int r) {
        const auto side = world.MakeGroup(r, by);
        Batch batch;
        batch.seq = seq;
        batch.type = OpType::kBroadcast;
        batch.dtype = DType::kUint8;
        batch.root = root;
        batch.tensors.push_back(world.rank(r).Put(r == root ? expected : Bytes(1001), {1001}, root == 1));
        EXPECT_OK(world.Run(r, side->group, batch));
        EXPECT(world.rank(r).Take(batch.tensors[0], 1001) == expected);
      });
    }
  }
}

TEST(gpu_alltoall_of_uneven_splits) {
  const NoFaults no_faults;
  for (const By by : {kByNccl, kThroughHost}) {
    GpuWorld world({0, 0, 0});
    const auto rows = [](int from, int to) { return static_cast<size_t>((from + 2 * to) % 3) * 7; };
    const uint64_t seq = next_seq += 3;
    const auto part = [&](int from, int to) {
      return RandomElements(DType::kInt32, 2 * rows(from, to), 10 * from + to);
    };
    RanksAsThreads(3, [&](int r) {
      Bytes input, expected;
      std::vector<int64_t> splits, received;
      for (int m = 0; m < 3; ++m) {
        const Bytes sent = part(r, m), got = part(m, r);
        input.insert(input.end(), sent.begin(), sent.end());
        expected.insert(expected.end(), got.begin(), got.end());
        splits.push_back(static_cast<int64_t>(rows(r, m)));
        received.push_back(static_cast<int64_t>(rows(m, r)));
      }
      const auto side = world.MakeGroup(r, by);
      Batch batch;
      batch.seq = seq;
      batch.type = OpType::kAlltoall;
      batch.dtype = DType::kInt32;
      batch.tensors.push_back(world.rank(r).Put(input, {static_cast<int64_t>(input.size() / 8), 2}, true));
      Tensor& t = batch.tensors[0];
      t.output = nullptr;
      t.splits = splits;
      EXPECT_OK(world.Run(r, side->group, batch));
      EXPECT_EQ(t.result->bytes, expected.size());
      EXPECT(world.rank(r).Take(t, expected.size()) == expected);
      EXPECT(t.received_rows == received);
    });
  }
}

TEST(gpu_reducescatter_of_even_and_uneven_blocks) {
  const NoFaults no_faults;
  for (const By by : {kByNccl, kThroughHost}) {
    GpuWorld world({0, 0, 0});
    for (const size_t n_rows : {size_t{6}, size_t{7}, size_t{2}}) {
      for (const double factor : {1.0, 1.0 / 3}) {
        for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
          const uint64_t seq = next_seq += 3;
          std::vector<Bytes> inputs;
          for (int r = 0; r < 3; ++r) inputs.push_back(ExactElements(dtype, n_rows * 5, r));
          const Bytes all = Combine(dtype, ReduceOp::kSum, {factor, 1.0}, inputs);
          RanksAsThreads(3, [&](int r) {
            const auto side = world.MakeGroup(r, by);
            Batch batch;
            batch.seq = seq;
            batch.type = OpType::kReducescatter;
            batch.dtype = dtype;
            batch.prescale = factor;
            batch.tensors.push_back(world.rank(r).Put(inputs[r], {static_cast<int64_t>(n_rows), 5}, true));
            Tensor& t = batch.tensors[0];
            t.output = nullptr;
            EXPECT_OK(world.Run(r, side->group, batch));
            const auto block = BlockOfMember(n_rows, 3, r);
            const size_t row = 5 * SizeOf(dtype);
            EXPECT_EQ(t.result->bytes, block.count * row);
            const Bytes got = world.rank(r).Take(t, block.count * row);
            const Bytes expected(all.begin() + block.first * row, all.begin() + (block.first + block.count) * row);
            if (factor == 1.0) {
              EXPECT(got == expected);
            } else {
              for (size_t e = 0; e < block.count * 5; ++e) {
                const auto at = [&](const Bytes& b) {
                  if (dtype == DType::kFloat64) return reinterpret_cast<const double*>(b.data())[e];
                  return static_cast<double>(reinterpret_cast<const float*>(b.data())[e]);
                };
                EXPECT(std::abs(at(got) - at(expected)) < 1e-6);
              }
            }
          });
        }
      }
    }
  }
}

// Memory of the host is used again, or grows, when the device is through with what it held.
TEST(gpu_batches_through_the_host_follow_one_another) {
  const NoFaults no_faults;
  GpuWorld world({0, 0});
  const std::vector<size_t> rows = {5, 700'000, 700'000, 20};
  const uint64_t seq = next_seq += 3 * rows.size();
  RanksAsThreads(2, [&](int r) {
    const auto side = world.MakeGroup(r, kThroughHost);
    std::vector<Batch> batches(rows.size());
    for (size_t k = 0; k < rows.size(); ++k) {
      batches[k].seq = seq + 3 * k;
      batches[k].type = OpType::kAllgather;
      batches[k].dtype = DType::kInt32;
      batches[k].tensors.push_back(
          world.rank(r).Put(RandomElements(DType::kInt32, rows[k], 10 * k + r), {static_cast<int64_t>(rows[k])}, true));
      batches[k].tensors.back().output = nullptr;
    }
    for (Batch& batch : batches) EXPECT_OK(world.Run(r, side->group, batch));
    for (size_t k = 0; k < rows.size(); ++k) {
      Bytes expected = RandomElements(DType::kInt32, rows[k], 10 * k);
      const Bytes more = RandomElements(DType::kInt32, rows[k], 10 * k + 1);
      expected.insert(expected.end(), more.begin(), more.end());
      EXPECT(world.rank(r).Take(batches[k].tensors[0], expected.size()) == expected);
    }
  });
}

// What NCCL would do otherwise than the host's ways, or not at all.
TEST(gpu_batches_that_go_through_the_host) {
  NEEDS_FAKES();
  GpuWorld world({0, 0});
  const auto side = world.MakeGroup(0, kByNccl);
  const auto why = [&](DType dtype, ReduceOp op, double factor) {
    Batch batch;
    batch.dtype = dtype;
    batch.op = op;
    batch.postscale = factor;
    return world.rank(0).nccl.Unsupported(side->group, batch);
  };
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_EQ(why(DType::kFloat32, op, 1), "NCCL does not say what Min and Max are of a NaN");
    EXPECT_EQ(why(DType::kInt32, op, 1), "");
  }
  EXPECT_EQ(why(DType::kFloat32, ReduceOp::kProduct, 0.5), "NCCL multiplies sums of floats only");
  EXPECT_EQ(why(DType::kInt32, ReduceOp::kSum, 0.5), "NCCL multiplies sums of floats only");
  EXPECT_EQ(why(DType::kFloat32, ReduceOp::kProduct, 1), "");
  EXPECT_EQ(why(DType::kBool, ReduceOp::kSum, 1), "NCCL cannot add bool");
  EXPECT_EQ(why(DType::kFloat8E4m3fn, ReduceOp::kSum, 1), "NCCL would round sums of float8_e4m3fn at every link");
  EXPECT_EQ(why(DType::kFloat32, ReduceOp::kAdasum, 1), "NCCL has no Adasum");
}

TEST(gpu_alone_copies_on_the_device) {
  const NoFaults no_faults;
  GpuWorld world({0});
  for (const DType dtype : AllDTypes()) {
    RunAllreduce(world, kThroughHost, dtype, ReduceOp::kSum, {5, 33});
    RunAllreduce(world, kThroughHost, dtype, ReduceOp::kSum, {5, 33}, {2.0, 1.0});
  }
  RunAllgather(world, kThroughHost, {4});
}

}  // namespace
}  // namespace hvd::test::backend_nccl_collectives
