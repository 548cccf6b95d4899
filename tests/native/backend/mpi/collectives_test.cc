// The collectives by MPI, over a library with each style of handles, against plainly computed results.
#include "collective/shm/collectives.h"

#include "native/backend/mpi/world.h"

namespace hvd::test::backend_mpi_collectives {
namespace {

using collective::Batch;
using collective::Group;
using collective::Tensor;
using collective::shm::BlockOfMember;

// Batches that are sent in several pieces, and so take long to check, need one style of handles only.
bool InPieces(Style style) { return style == Style::kMpich; }

Bytes Rows(const Bytes& data, size_t first, size_t count, size_t row_bytes) {
  return Bytes(data.begin() + first * row_bytes, data.begin() + (first + count) * row_bytes);
}

// An allreduce of two tensors on all ranks of a world.
void RunAllreduce(MpiWorld& world, DType dtype, ReduceOp op, size_t elems, collective::kernels::Factors factors = {},
                  bool deterministic = false) {
  const int n = world.size();
  std::vector<Bytes> first, second;
  for (int r = 0; r < n; ++r) {
    // Where the library reduces, its order is its own.
    first.push_back(deterministic ? RandomElements(dtype, elems, r) : ExactElements(dtype, elems, r));
    second.push_back(ExactElements(dtype, 3, 100 + r));
  }
  const Bytes expected = Combine(dtype, op, factors, first), expected_second = Combine(dtype, op, factors, second);
  RanksAsThreads(n, [&](int r) {
    Group group = MpiWorld::GroupOf(r, world.all());
    group.deterministic = deterministic;
    Bytes in_place = first[r], out(second[r].size());
    Batch batch;
    batch.dtype = dtype;
    batch.op = op;
    batch.prescale = factors.pre;
    batch.postscale = factors.post;
    batch.tensors.push_back(MakeTensor(in_place.data(), in_place.data(), {static_cast<int64_t>(elems)}));
    batch.tensors.push_back(MakeTensor(second[r].data(), out.data(), {3}));
    EXPECT_OK(world.Run(r, group, batch));
    EXPECT(Same(in_place.data(), expected));
    EXPECT(Same(out.data(), expected_second));
  });
}

TEST(mpi_allreduce_of_every_type_and_operation) {
  for (const Style style : AllStyles()) {
    MpiWorld world(style, 3);
    for (const DType dtype : AllDTypes()) {
      for (const ReduceOp op : ElementwiseOps()) {
        const size_t many = InPieces(style) ? 100003 : 1003;
        for (const size_t elems : {size_t{0}, size_t{5}, many}) RunAllreduce(world, dtype, op, elems);
      }
      RunAllreduce(world, dtype, ReduceOp::kSum, 100, {2.0, 0.5});
    }
    EXPECT_EQ(world.fake().faults(), 0);
  }
}

TEST(mpi_allreduce_in_pieces) {
  MpiWorld world(Style::kMpich, 2);
  RunAllreduce(world, DType::kFloat32, ReduceOp::kSum, (9 << 20) + 5);
  RunAllreduce(world, DType::kFloat16, ReduceOp::kSum, (17 << 20) + 1);
  EXPECT_EQ(world.fake().faults(), 0);
}

TEST(mpi_allreduce_in_rank_order_where_results_must_be_deterministic) {
  MpiWorld world(Style::kStandard, 4);
  for (const size_t elems : {size_t{7}, size_t{1000}, size_t{300000}})
    RunAllreduce(world, DType::kFloat32, ReduceOp::kSum, elems, {}, true);
}

// rows[member]
void RunAllgather(MpiWorld& world, const std::vector<size_t>& rows, size_t row_elems) {
  std::vector<Bytes> inputs;
  Bytes expected;
  for (int m = 0; m < world.size(); ++m) {
    inputs.push_back(RandomElements(DType::kInt16, rows[m] * row_elems, m));
    expected.insert(expected.end(), inputs[m].begin(), inputs[m].end());
  }
  RanksAsThreads(world.size(), [&](int r) {
    Batch batch;
    batch.type = OpType::kAllgather;
    batch.dtype = DType::kInt16;
    const std::vector<int64_t> shape = {static_cast<int64_t>(rows[r]), static_cast<int64_t>(row_elems)};
    for (int i = 0; i < 2; ++i) batch.tensors.push_back(MakeTensor(inputs[r].data(), nullptr, shape));
    EXPECT_OK(world.Run(r, MpiWorld::GroupOf(r, world.all()), batch));
    for (const Tensor& t : batch.tensors) {
      EXPECT(ResultIs(t, expected));
      EXPECT(t.received_rows == std::vector<int64_t>(rows.begin(), rows.end()));
    }
  });
}

TEST(mpi_allgather_of_uneven_rows) {
  for (const Style style : AllStyles()) {
    MpiWorld world(style, 3);
    RunAllgather(world, {2, 0, 5}, 3);
    RunAllgather(world, {0, 0, 0}, 3);
    if (InPieces(style)) RunAllgather(world, {0, 2'000'000, 1}, 3);
    EXPECT_EQ(world.fake().faults(), 0);
  }
}

TEST(mpi_broadcast_from_each_root) {
  for (const Style style : AllStyles()) {
    MpiWorld world(style, 3);
    for (const size_t elems : {size_t{0}, size_t{11}, InPieces(style) ? size_t{20'000'000} : size_t{2000}}) {
      const int root = static_cast<int>(elems % 3);
      const Bytes expected = RandomElements(DType::kUint8, elems, 7);
      RanksAsThreads(3, [&](int r) {
        Bytes input = r == root ? expected : Bytes(elems), output(elems);
        Batch batch;
        batch.type = OpType::kBroadcast;
        batch.dtype = DType::kUint8;
        batch.root = root;
        batch.tensors.push_back(MakeTensor(input.data(), output.data(), {static_cast<int64_t>(elems)}));
        EXPECT_OK(world.Run(r, MpiWorld::GroupOf(r, world.all()), batch));
        EXPECT(Same(output.data(), expected));
      });
    }
    EXPECT_EQ(world.fake().faults(), 0);
  }
}

TEST(mpi_alltoall_of_uneven_splits) {
  for (const Style style : AllStyles()) {
    MpiWorld world(style, 3);
    for (const size_t most : {size_t{4}, InPieces(style) ? size_t{1'500'000} : size_t{1500}}) {
      const auto rows = [&](int from, int to) { return (from + 2 * to) % 3 * most / 2; };
      constexpr size_t kRowBytes = 8;
      std::vector<std::vector<Bytes>> sent(3);
      for (int from = 0; from < 3; ++from) {
        for (int to = 0; to < 3; ++to)
          sent[from].push_back(RandomElements(DType::kInt32, 2 * rows(from, to), 10 * from + to));
      }
      RanksAsThreads(3, [&](int r) {
        Bytes input, expected;
        for (int m = 0; m < 3; ++m) {
          input.insert(input.end(), sent[r][m].begin(), sent[r][m].end());
          expected.insert(expected.end(), sent[m][r].begin(), sent[m][r].end());
        }
        Batch batch;
        batch.type = OpType::kAlltoall;
        batch.dtype = DType::kInt32;
        batch.tensors.push_back(MakeTensor(input.data(), nullptr, {static_cast<int64_t>(input.size() / kRowBytes), 2}));
        for (int m = 0; m < 3; ++m) batch.tensors[0].splits.push_back(static_cast<int64_t>(rows(r, m)));
        EXPECT_OK(world.Run(r, MpiWorld::GroupOf(r, world.all()), batch));
        EXPECT(ResultIs(batch.tensors[0], expected));
      });
    }
    EXPECT_EQ(world.fake().faults(), 0);
  }
}

TEST(mpi_reducescatter_of_uneven_blocks) {
  for (const Style style : AllStyles()) {
    MpiWorld world(style, 3);
    for (const DType dtype : {DType::kFloat16, DType::kInt64, DType::kBool}) {
      for (const size_t rows : {size_t{1}, size_t{7}, InPieces(style) ? size_t{1'500'001} : size_t{1501}}) {
        const size_t row_bytes = 2 * SizeOf(dtype);
        std::vector<Bytes> inputs;
        for (int m = 0; m < 3; ++m) inputs.push_back(ExactElements(dtype, 2 * rows, m));
        const Bytes whole = Combine(dtype, ReduceOp::kSum, {1.0, 0.5}, inputs);
        RanksAsThreads(3, [&](int r) {
          Batch batch;
          batch.type = OpType::kReducescatter;
          batch.dtype = dtype;
          batch.postscale = 0.5;
          batch.tensors.push_back(MakeTensor(inputs[r].data(), nullptr, {static_cast<int64_t>(rows), 2}));
          EXPECT_OK(world.Run(r, MpiWorld::GroupOf(r, world.all()), batch));
          const auto block = BlockOfMember(rows, 3, r);
          EXPECT(ResultIs(batch.tensors[0], Rows(whole, block.first, block.count, row_bytes)));
        });
      }
    }
    EXPECT_EQ(world.fake().faults(), 0);
  }
}

// The members of each set meet in a communicator of their own, made with the first batch.
TEST(mpi_sets_whose_members_overlap) {
  for (const Style style : AllStyles()) {
    MpiWorld world(style, 4);
    const std::vector<std::vector<int>> sets = {{0, 1, 2}, {1, 2, 3}, {0, 3}, {0, 1, 2, 3}};
    RanksAsThreads(4, [&](int r) {
      for (int round = 0; round < 3; ++round) {
        for (const std::vector<int>& set : sets) {
          if (std::find(set.begin(), set.end(), r) == set.end()) continue;
          float value = static_cast<float>(r + round), expected = 0;
          for (const int member : set) expected += static_cast<float>(member + round);
          auto* const data = reinterpret_cast<std::byte*>(&value);
          Batch batch;
          batch.tensors.push_back(MakeTensor(data, data, {1}));
          EXPECT_OK(world.Run(r, MpiWorld::GroupOf(r, set), batch));
          EXPECT_EQ(value, expected);
        }
      }
    });
    EXPECT_EQ(world.fake().faults(), 0);
  }
}

TEST(mpi_barrier_holds_until_all_have_come) {
  MpiWorld world(Style::kOpenMpi, 3);
  std::atomic<int> come{0};
  RanksAsThreads(3, [&](int r) {
    Batch batch;
    batch.type = OpType::kBarrier;
    ++come;
    EXPECT_OK(world.Run(r, MpiWorld::GroupOf(r, world.all()), batch));
    EXPECT_EQ(come.load(), 3);
  });
}

// ---- failure

TEST(mpi_is_out_of_use_once_an_operation_was_given_up) {
  MpiWorld world(Style::kStandard, 2);
  const Group group = MpiWorld::GroupOf(0, world.all());
  float value = 1;
  auto* const data = reinterpret_cast<std::byte*>(&value);
  Batch batch;
  batch.tensors.push_back(MakeTensor(data, data, {1}));
  {
    Runner runner(backend::mpi::Collective(world.job(0), group, batch));
    runner.Advance();
    EXPECT(!runner.done());
    EXPECT(runner.LookAgainInS() <= 200e-6);
    EXPECT(world.job(0).usable());
  }  // rank 1 has died, say
  EXPECT(!world.job(0).usable());
  EXPECT(world.job(1).usable());
  EXPECT(world.job(0).out_of_use().find("given up") != std::string::npos);
  EXPECT(!Job::AnyOutOfUse().empty());
}

TEST(mpi_failure_of_the_library_names_function_and_reason) {
  MpiWorld world(Style::kMpich, 2);
  world.fake().Get<FakeFailNext>("fake_fail_next")(1);
  float value = 1;
  auto* const data = reinterpret_cast<std::byte*>(&value);
  Batch batch;
  batch.tensors.push_back(MakeTensor(data, data, {1}));
  const Status status = world.Run(0, MpiWorld::GroupOf(0, world.all()), batch);
  EXPECT(status.message().find("MPI_Iallreduce") != std::string::npos);
  EXPECT(status.message().find("the fake failed with 15") != std::string::npos);
  EXPECT(!world.job(0).usable());
}

TEST(mpi_library_that_is_none_is_refused) {
  const FakeMpi fake(Style::kMpich);
  const auto absent = Job::Of("/no/such/libmpi.so", Style::kMpich, 0);
  EXPECT(absent.status().code() == Code::kBackendUnavailable);
  const auto of_another_style = Job::Of(fake.path(), Style::kOpenMpi, 0);
  EXPECT(of_another_style.status().message().find("ompi_mpi_") != std::string::npos);
}

}  // namespace
}  // namespace hvd::test::backend_mpi_collectives
