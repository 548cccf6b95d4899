// Which tensors of an allreduce are packed for NCCL, and which go to it where they lie: seen in what is put on streams.
#include "native/backend/nccl/world.h"

namespace hvd::test::backend_nccl_packed {
namespace {

// By two ranks, of float32 tensors of these element counts. What is put on streams is recorded from the beginning.
void Sum(const Fakes& fakes, const std::vector<size_t>& counts, bool deterministic) {
  GpuWorld world({0, 0});
  fakes.fake_cuda_record_start();
  RanksAsThreads(2, [&](int r) {
    const auto side = world.MakeGroup(r, By::kNccl);
    side->group.deterministic = deterministic;
    Batch batch;
    batch.seq = 3;
    std::vector<Bytes> values;
    for (const size_t count : counts) {
      values.push_back(ExactElements(DType::kFloat32, count, count));
      batch.tensors.push_back(world.rank(r).Put(values.back(), {static_cast<int64_t>(count)}, true));
    }
    EXPECT_OK(world.Run(r, side->group, batch));
    for (size_t i = 0; i < counts.size(); ++i) {
      const Bytes expected = Combine(DType::kFloat32, ReduceOp::kSum, {}, {values[i], values[i]});
      EXPECT(world.rank(r).Take(batch.tensors[i], expected.size()) == expected);
    }
  });
}

TEST(gpu_small_tensors_are_packed) {
  const NoFaults no_faults;
  NEEDS_FAKES();
  Sum(no_faults.fakes(), {100, 33, 7}, /*deterministic=*/false);
  EXPECT_EQ(no_faults.fakes().LinesWith(": pack_bytes 3").size(), size_t{2 * 2});  // into the buffer and out of it
  EXPECT_EQ(no_faults.fakes().LinesWith(": allreduce 256 float32").size(), size_t{2});
  EXPECT_EQ(no_faults.fakes().LinesWith("allreduce").size(), size_t{2});
}

// Which tensors travel together depends on when they were ready; where NCCL cuts a buffer, and so in which order it
// adds, depends on what is in it.
TEST(gpu_deterministic_sums_are_not_packed) {
  const NoFaults no_faults;
  NEEDS_FAKES();
  Sum(no_faults.fakes(), {100, 33, 7}, /*deterministic=*/true);
  EXPECT_EQ(no_faults.fakes().LinesWith("pack_").size(), size_t{0});
  const std::string each = ": allreduce 100 float32, allreduce 33 float32, allreduce 7 float32";
  EXPECT_EQ(no_faults.fakes().LinesWith(each).size(), size_t{2});
}

TEST(gpu_tensors_of_four_megabytes_are_reduced_where_they_lie) {
  const NoFaults no_faults;
  NEEDS_FAKES();
  constexpr size_t kLarge = (4 << 20) / sizeof(float);
  Sum(no_faults.fakes(), {kLarge, kLarge - 1, 5}, /*deterministic=*/false);
  EXPECT_EQ(no_faults.fakes().LinesWith(": pack_bytes 2").size(), size_t{2 * 2});
  const std::string packed = std::to_string(kLarge + 64), alone = std::to_string(kLarge);
  const std::string calls = ": allreduce " + packed + " float32, allreduce " + alone + " float32";
  EXPECT_EQ(no_faults.fakes().LinesWith(calls).size(), size_t{2});
}

}  // namespace
}  // namespace hvd::test::backend_nccl_packed
