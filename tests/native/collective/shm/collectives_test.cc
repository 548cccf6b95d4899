// Allgather, broadcast, alltoall, reducescatter, barrier and exchange over shared memory against plainly computed
// results.
#include "collective/shm/collectives.h"

#include <atomic>

#include "native/collective/shm/world.h"

namespace hvd::test::collective_shm_collectives {
namespace {

using namespace hvd::collective;
using namespace hvd::collective::shm;

constexpr size_t kPiece = transport::LocalView::kStages * transport::LocalView::stage_bytes() / 4;

// Worlds of an odd size store past the caches, results too.
std::vector<std::unique_ptr<GroupSide>> Groups(ShmWorld& world) {
  using Setting = StoreChooser::Setting;
  const Setting setting = world.size() % 2 != 0 ? Setting::kStreaming : Setting::kMeasure;
  std::vector<std::unique_ptr<GroupSide>> groups;
  for (int r = 0; r < world.size(); ++r) groups.push_back(MakeGroup(world.rank(r), world.all(), setting));
  return groups;
}

void Append(Bytes* all, const Bytes& part) { all->insert(all->end(), part.begin(), part.end()); }
Bytes Rows(const Bytes& data, size_t first, size_t count, size_t row_bytes) {
  return Bytes(data.begin() + first * row_bytes, data.begin() + (first + count) * row_bytes);
}

// ---- allgather

// Worlds without shared memory for results, with little of it, and with enough.
constexpr size_t kHeaps[] = {0, 4 << 20, 64 << 20};
// So many members at most where each heap is tried.
constexpr int MostMembers(size_t heap) { return heap == 0 ? 8 : 4; }

// Memory that the caller gives for the result of this size, on some members: such results take no direct stores.
void GiveRoom(Tensor* t, Bytes* room, size_t bytes, std::mt19937_64& random) {
  if (random() % 8 != 0) return;
  room->resize(bytes);
  t->output = room->data();
  t->room = bytes;
}

// rows[tensor][member]
void RunAllgather(ShmWorld& world, std::vector<std::unique_ptr<GroupSide>>& groups, uint64_t seq, DType dtype,
                  size_t row_elems, const std::vector<std::vector<size_t>>& rows) {
  const int n = world.size();
  std::vector<std::vector<Bytes>> inputs(rows.size());
  std::vector<Bytes> expected(rows.size());
  for (size_t t = 0; t < rows.size(); ++t) {
    for (int m = 0; m < n; ++m) {
      inputs[t].push_back(RandomElements(dtype, rows[t][m] * row_elems, seq * 1000 + t * 20 + m));
      Append(&expected[t], inputs[t][m]);
    }
  }
  RanksAsThreads(n, [&](int rank) {
    std::mt19937_64 random(seq * 10 + rank);
    std::vector<Bytes> rooms(rows.size());
    Batch batch;
    batch.seq = seq;
    batch.type = OpType::kAllgather;
    batch.dtype = dtype;
    for (size_t t = 0; t < rows.size(); ++t) {
      batch.tensors.push_back(MakeTensor(inputs[t][rank].data(), nullptr,
                                         {static_cast<int64_t>(rows[t][rank]), static_cast<int64_t>(row_elems)}));
      GiveRoom(&batch.tensors[t], &rooms[t], expected[t].size(), random);
    }
    EXPECT_OK(Drive(world.rank(rank), Allgather(groups[rank]->group, batch)));
    for (size_t t = 0; t < rows.size(); ++t) {
      const Tensor& done = batch.tensors[t];
      EXPECT(ResultIs(done, expected[t]));
      EXPECT(done.received_rows == std::vector<int64_t>(rows[t].begin(), rows[t].end()));
    }
  });
}

void AllgatherUnevenRows(size_t heap) {
  std::mt19937_64 random(1);
  for (int n = 1; n <= MostMembers(heap); ++n) {
    ShmWorld world(n, heap);
    auto groups = Groups(world);
    uint64_t seq = 0;
    const auto rows = [&](size_t most) {
      std::vector<size_t> r(n);
      for (size_t& x : r) x = random() % 3 == 0 ? 0 : random() % (most + 1);
      return r;
    };
    for (int d = 0; d < kDTypeCount; ++d) RunAllgather(world, groups, ++seq, static_cast<DType>(d), 3, {rows(40)});
    for (const size_t same :
         {size_t{0}, size_t{1}, size_t(n - 1), size_t(n), size_t(n + 1), size_t{1000}, size_t{100003}}) {
      RunAllgather(world, groups, ++seq, DType::kUint8, 1, {std::vector<size_t>(n, same)});
    }
    RunAllgather(world, groups, ++seq, DType::kFloat32, 0, {rows(5)});  // rows of no bytes
    RunAllgather(world, groups, ++seq, DType::kFloat32, 7, {rows(40), rows(0), rows(1), rows(500)});  // fused, inline
    RunAllgather(world, groups, ++seq, DType::kInt64, 13,
                 {rows(9000), rows(3), rows(700)});  // some inline, some streamed
    RunAllgather(world, groups, ++seq, DType::kUint16, 1,
                 {std::vector<size_t>(n, 4 * kPiece / 2 + 77)});  // many pieces
    if (n <= 3) RunAllgather(world, groups, ++seq, DType::kFloat32, 1, {rows(2000000), rows(10), rows(300000)});
    for (int i = 0; i < 8 && heap != 0; ++i)
      RunAllgather(world, groups, ++seq, DType::kInt32, 1, {rows(90000), rows(9)});
  }
}

TEST(shm_allgather_uneven_rows) {
  for (const size_t heap : kHeaps) AllgatherUnevenRows(heap);
}

TEST(shm_allgather_of_very_many_tensors) {  // the header alone does not fit a small buffer
  ShmWorld world(2);
  auto groups = Groups(world);
  RunAllgather(world, groups, 3, DType::kInt32, 1, std::vector<std::vector<size_t>>(9001, {1, 2}));
}

// ---- broadcast

TEST(shm_broadcast_from_every_root) {
  for (int n = 1; n <= (kThreadSanitizer ? 4 : 8); ++n) {
    ShmWorld world(n);
    auto groups = Groups(world);
    uint64_t seq = 0;
    const std::vector<std::vector<size_t>> shapes = {{0},
                                                     {1},
                                                     {static_cast<size_t>(n)},
                                                     {1000},
                                                     {65536, 0, 5},
                                                     {65537},
                                                     {100003, 70000},
                                                     {5 * kPiece - 1},
                                                     {2 * kPiece, 3 * kPiece + 9}};
    for (const auto& sizes : shapes) {
      for (int root = 0; root < n; root += n > 4 ? 3 : 1) {
        const DType dtype = static_cast<DType>(++seq % kDTypeCount);
        std::vector<Bytes> expected;
        for (size_t t = 0; t < sizes.size(); ++t)
          expected.push_back(RandomElements(dtype, sizes[t] / SizeOf(dtype), seq * 10 + t));
        const bool in_place = seq % 2;
        RanksAsThreads(n, [&](int rank) {
          std::vector<Bytes> input, output;
          Batch batch;
          batch.seq = seq;
          batch.type = OpType::kBroadcast;
          batch.dtype = dtype;
          batch.root = root;
          for (const Bytes& e : expected) {
            input.push_back(rank == root ? e : Bytes(e.size()));
            output.push_back(in_place ? input.back() : Bytes(e.size()));
          }
          for (size_t t = 0; t < sizes.size(); ++t) {
            batch.tensors.push_back(MakeTensor(in_place ? output[t].data() : input[t].data(), output[t].data(),
                                               {static_cast<int64_t>(sizes[t] / SizeOf(dtype))}));
          }
          EXPECT_OK(Drive(world.rank(rank), Broadcast(groups[rank]->group, batch)));
          EXPECT(output == expected);
        });
      }
    }
  }
}

// ---- alltoall

// splits[from][to], of each of `tensors` tensors (tensor t has t times as many rows).
void RunAlltoall(ShmWorld& world, std::vector<std::unique_ptr<GroupSide>>& groups, uint64_t seq, DType dtype,
                 size_t row_elems, size_t tensors, const std::vector<std::vector<int64_t>>& splits) {
  const int n = world.size();
  const size_t row_bytes = row_elems * SizeOf(dtype);
  std::vector<std::vector<Bytes>> inputs(tensors);
  for (size_t t = 0; t < tensors; ++t) {
    for (int m = 0; m < n; ++m) {
      size_t rows = 0;
      for (const int64_t s : splits[m]) rows += s * (t + 1);
      inputs[t].push_back(RandomElements(dtype, rows * row_elems, seq * 1000 + t * 20 + m));
    }
  }
  RanksAsThreads(n, [&](int rank) {
    Batch batch;
    batch.seq = seq;
    batch.type = OpType::kAlltoall;
    batch.dtype = dtype;
    for (size_t t = 0; t < tensors; ++t) {
      int64_t rows = 0;
      std::vector<int64_t> mine = splits[rank];
      for (int64_t& s : mine) rows += s *= static_cast<int64_t>(t + 1);
      batch.tensors.push_back(MakeTensor(inputs[t][rank].data(), nullptr, {rows, static_cast<int64_t>(row_elems)}));
      batch.tensors.back().splits = mine;
    }
    EXPECT_OK(Drive(world.rank(rank), Alltoall(groups[rank]->group, batch)));
    for (size_t t = 0; t < tensors; ++t) {
      Bytes expected;
      std::vector<int64_t> received;
      for (int m = 0; m < n; ++m) {
        size_t first = 0;
        for (int d = 0; d < rank; ++d) first += splits[m][d] * (t + 1);
        Append(&expected, Rows(inputs[t][m], first, splits[m][rank] * (t + 1), row_bytes));
        received.push_back(splits[m][rank] * static_cast<int64_t>(t + 1));
      }
      EXPECT(ResultIs(batch.tensors[t], expected));
      EXPECT(batch.tensors[t].received_rows == received);
    }
  });
}

void AlltoallEverySplit(size_t heap) {
  std::mt19937_64 random(2);
  for (int n = 1; n <= MostMembers(heap); ++n) {
    ShmWorld world(n, heap);
    auto groups = Groups(world);
    uint64_t seq = 0;
    const auto splits = [&](size_t most) {
      std::vector<std::vector<int64_t>> s(n, std::vector<int64_t>(n));
      for (auto& row : s) {
        for (int64_t& x : row) x = random() % 4 == 0 ? 0 : static_cast<int64_t>(random() % (most + 1));
      }
      return s;
    };
    for (int d = 0; d < kDTypeCount; ++d) RunAlltoall(world, groups, ++seq, static_cast<DType>(d), 5, 1, splits(20));
    RunAlltoall(world, groups, ++seq, DType::kFloat32, 3, 1, splits(0));
    RunAlltoall(world, groups, ++seq, DType::kFloat32, 0, 1, splits(4));
    RunAlltoall(world, groups, ++seq, DType::kFloat32, 3, 3, splits(50));
    RunAlltoall(world, groups, ++seq, DType::kInt8, 17, 2, splits(3000));
    RunAlltoall(world, groups, ++seq, DType::kFloat32, 100, 1,
                splits(100));  // about one small buffer: some inline, some not
    RunAlltoall(world, groups, ++seq, DType::kFloat64, 1, 1, splits(n <= 3 ? 200000 : 30000));
    auto one = splits(0);
    one[0][n - 1] = 400001;  // one sender, one receiver
    RunAlltoall(world, groups, ++seq, DType::kUint8, 1, 1, one);
    for (int i = 0; i < 8 && heap != 0; ++i) RunAlltoall(world, groups, ++seq, DType::kFloat32, 1, 2, splits(60000));
  }
}

TEST(shm_alltoall_every_split) {
  for (const size_t heap : kHeaps) AlltoallEverySplit(heap);
}

// ---- reducescatter

TEST(shm_reducescatter_blocks) {
  for (int n = 1; n <= 8; ++n) {
    ShmWorld world(n);
    auto groups = Groups(world);
    uint64_t seq = 0;
    struct Case {
      DType dtype;
      size_t row_elems;
      std::vector<size_t> rows;
    };
    std::vector<Case> cases;
    for (int d = 0; d < kDTypeCount; ++d) cases.push_back({static_cast<DType>(d), 3, {7}});
    for (const size_t rows : {0, 1, n - 1, n, n + 1, 1000, 100003}) cases.push_back({DType::kFloat32, 1, {rows}});
    cases.push_back({DType::kFloat16, 11, {5, 0, 23, static_cast<size_t>(n)}});
    cases.push_back({DType::kBfloat16, 9, {30000, 3, 5001}});
    cases.push_back({DType::kFloat64, 0, {5}});
    cases.push_back({DType::kInt32, 5, {n <= 3 ? size_t{200000} : size_t{40000}, 17}});
    for (const Case& c : cases) {
      ++seq;
      std::vector<std::vector<Bytes>> inputs(c.rows.size());
      std::vector<Bytes> sums;
      const kernels::Factors factors = seq % 2 ? kernels::Factors{} : kernels::Factors{0.5, 2.0};
      for (size_t t = 0; t < c.rows.size(); ++t) {
        for (int m = 0; m < n; ++m)
          inputs[t].push_back(RandomElements(c.dtype, c.rows[t] * c.row_elems, seq * 1000 + t * 20 + m));
        sums.push_back(Combine(c.dtype, ReduceOp::kSum, factors, inputs[t]));
      }
      RanksAsThreads(n, [&](int rank) {
        Batch batch;
        batch.seq = seq;
        batch.type = OpType::kReducescatter;
        batch.dtype = c.dtype;
        batch.prescale = factors.pre;
        batch.postscale = factors.post;
        for (size_t t = 0; t < c.rows.size(); ++t) {
          batch.tensors.push_back(MakeTensor(inputs[t][rank].data(), nullptr,
                                             {static_cast<int64_t>(c.rows[t]), static_cast<int64_t>(c.row_elems)}));
        }
        EXPECT_OK(Drive(world.rank(rank), Reducescatter(groups[rank]->group, batch)));
        for (size_t t = 0; t < c.rows.size(); ++t) {
          size_t first = 0;  // counted out, not by BlockOfMember
          const size_t more = c.rows[t] % n, each = c.rows[t] / n;
          for (int m = 0; m < rank; ++m) first += each + (static_cast<size_t>(m) < more);
          const size_t count = each + (static_cast<size_t>(rank) < more);
          EXPECT(ResultIs(batch.tensors[t], Rows(sums[t], first, count, c.row_elems * SizeOf(c.dtype))));
        }
      });
    }
  }
}

// ---- barrier, exchange

TEST(shm_barrier_holds_back) {
  ShmWorld world(4);
  auto groups = Groups(world);
  std::atomic<int> arrived{0};
  for (uint64_t seq = 1; seq <= 50; ++seq) {
    arrived = 0;
    RanksAsThreads(4, [&](int rank) {
      Batch batch;
      batch.seq = seq;
      batch.type = OpType::kBarrier;
      arrived.fetch_add(1);
      EXPECT_OK(Drive(world.rank(rank), Barrier(groups[rank]->group, batch)));
      EXPECT_EQ(arrived.load(), 4);
    });
  }
}

TEST(shm_exchange_of_every_size) {
  for (const int n : {1, 2, 5}) {
    ShmWorld world(n);
    auto groups = Groups(world);
    uint64_t seq = 0;
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{8}, size_t{65536}, size_t{65537}, size_t{400001}}) {
      Bytes expected;
      std::vector<Bytes> mine;
      for (int m = 0; m < n; ++m) Append(&expected, mine.emplace_back(RandomElements(DType::kUint8, bytes, bytes + m)));
      for (int repeat = 0; repeat < 3; ++repeat) {
        ++seq;
        RanksAsThreads(n, [&](int rank) {
          Bytes all(expected.size());
          EXPECT_OK(Drive(world.rank(rank), Exchange(groups[rank]->group, seq, mine[rank].data(), bytes, all.data())));
          EXPECT(all == expected);
        });
      }
    }
  }
}

TEST(shm_block_memory) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{4} << 20, (size_t{5} << 20) + 3}) {
    const Block block(bytes);
    EXPECT(block.data != nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data) % 64, 0u);
    EXPECT_EQ(block.bytes, bytes);
  }
  EXPECT(Block(SIZE_MAX - 4096).data == nullptr);
}

}  // namespace
}  // namespace hvd::test::collective_shm_collectives
