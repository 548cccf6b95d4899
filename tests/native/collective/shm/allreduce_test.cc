// Allreduce over shared memory: every dtype, operation and size class against one thread's result, bit by bit.
#include <atomic>
#include <chrono>
#include <thread>

#include "collective/kernels/table.h"
#include "collective/shm/collectives.h"
#include "native/base/reduce_ops.h"
#include "native/collective/shm/world.h"
#include "transport/futex.h"

namespace hvd::test::collective_shm_allreduce {
namespace {

using namespace hvd::collective;
using namespace hvd::collective::shm;

struct Case {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  kernels::Factors factors;
  std::vector<size_t> elems;  // per tensor
  bool in_place = true;
};

std::string Describe(const Case& c, int n, int rank) {
  std::string s = std::string(NameOf(c.dtype)) + " " + NameOf(c.op) + " n=" + std::to_string(n) + " rank " +
                  std::to_string(rank) + " elems";
  for (const size_t e : c.elems) s += " " + std::to_string(e);
  return s + (c.in_place ? " in place" : "");
}

// Runs one batch on all ranks of the world and compares.
void Run(ShmWorld& world, std::vector<std::unique_ptr<GroupSide>>& groups, uint64_t seq, const Case& c) {
  const int n = world.size();
  std::vector<std::vector<Bytes>> inputs(c.elems.size());
  std::vector<Bytes> expected;
  for (size_t t = 0; t < c.elems.size(); ++t) {
    for (int r = 0; r < n; ++r) inputs[t].push_back(RandomElements(c.dtype, c.elems[t], seq * 1000 + t * 10 + r));
    expected.push_back(Combine(c.dtype, c.op, c.factors, inputs[t]));
  }
  RanksAsThreads(n, [&](int rank) {
    Batch batch;
    batch.seq = seq;
    batch.dtype = c.dtype;
    batch.op = c.op;
    batch.prescale = c.factors.pre;
    batch.postscale = c.factors.post;
    std::vector<Bytes> outputs;
    for (size_t t = 0; t < c.elems.size(); ++t)
      outputs.push_back(c.in_place ? inputs[t][rank] : Bytes(expected[t].size()));
    for (size_t t = 0; t < c.elems.size(); ++t) {
      const std::byte* in = c.in_place ? outputs[t].data() : inputs[t][rank].data();
      batch.tensors.push_back(MakeTensor(in, outputs[t].data(), {static_cast<int64_t>(c.elems[t])}));
    }
    EXPECT_OK(Drive(world.rank(rank), Allreduce(groups[rank]->group, batch)));
    if (outputs != expected) Fail(__FILE__, __LINE__, "wrong: " + Describe(c, n, rank));
  });
}

std::vector<std::unique_ptr<GroupSide>> Groups(ShmWorld& world,
                                               StoreChooser::Setting stores = StoreChooser::Setting::kMeasure) {
  std::vector<std::unique_ptr<GroupSide>> groups;
  for (int r = 0; r < world.size(); ++r) groups.push_back(MakeGroup(world.rank(r), world.all(), stores));
  return groups;
}

TEST(shm_allreduce_every_dtype_and_op) {
  for (const int n : {1, 2, 3, 8}) {
    ShmWorld world(n);
    auto groups = Groups(world);
    uint64_t seq = 0;
    for (int d = 0; d < kDTypeCount; ++d) {
      for (const ReduceOp op : ElementwiseOps()) {
        for (const size_t elems : {size_t{3}, size_t{100003}}) {
          if (elems > 1000 && op != ReduceOp::kSum && n != 3) continue;
          ++seq;
          Run(world, groups, seq, {static_cast<DType>(d), op, {}, {elems}, (d + seq) % 2 == 0});
        }
      }
    }
  }
}

TEST(shm_allreduce_every_size) {
  for (int n = 1; n <= (kThreadSanitizer ? 3 : 8); ++n) {
    ShmWorld world(n);
    auto groups = Groups(world);
    uint64_t seq = 100;
    for (const int64_t elems : {0, 1, n - 1, n, n + 1, 1000, 8191, 16384, 16385, 100003, 131072, 1000003}) {
      for (const bool in_place : {true, false}) {
        Run(world, groups, ++seq,
            {DType::kFloat32, ReduceOp::kSum, {0.5, 3.0}, {static_cast<size_t>(elems)}, in_place});
      }
    }
    Run(world, groups, ++seq, {DType::kUint8, ReduceOp::kSum, {}, {3000001}, true});
    Run(world, groups, ++seq, {DType::kBfloat16, ReduceOp::kSum, {1.0, 1.0 / n}, {700001}, false});
  }
}

TEST(shm_allreduce_fused) {
  for (const int n : {2, 5, 8}) {
    ShmWorld world(n);
    auto groups = Groups(world);
    uint64_t seq = 7;
    std::mt19937_64 random(n);
    for (int round = 0; round < 12; ++round) {
      Case c;
      c.dtype = round % 2 ? DType::kFloat16 : DType::kFloat64;
      c.in_place = round % 3 != 0;
      const size_t most = round < 6 ? 300 : 60000;
      for (size_t t = 0; t < 1 + random() % 40; ++t) c.elems.push_back(random() % 5 == 0 ? 0 : random() % most);
      Run(world, groups, seq += 1 + random() % 3, c);
    }
  }
}

TEST(shm_allreduce_pinned_stores) {
  for (const auto setting : {StoreChooser::Setting::kOrdinary, StoreChooser::Setting::kStreaming}) {
    ShmWorld world(3);
    auto groups = Groups(world, setting);
    Run(world, groups, 1, {DType::kFloat32, ReduceOp::kSum, {}, {1000003}, true});
    Run(world, groups, 2, {DType::kInt64, ReduceOp::kMax, {}, {300003, 17}, false});
  }
}

// How much the kernels copy with streaming stores, from the first line of a scope to its end.
class StreamedCopies {
 public:
  StreamedCopies() {
    bytes_ = 0;
    before_ = kernels::UseKernels(&watched_);
    watched_ = *before_;
    watched_.stream = [](void* dst, const void* src, size_t bytes) {
      bytes_ += bytes;
      before_->stream(dst, src, bytes);
    };
  }
  ~StreamedCopies() { kernels::UseKernels(before_); }
  StreamedCopies(const StreamedCopies&) = delete;
  StreamedCopies& operator=(const StreamedCopies&) = delete;
  size_t bytes() const { return bytes_; }

 private:
  static inline const kernels::KernelTable* before_;
  static inline kernels::KernelTable watched_;
  static inline std::atomic<size_t> bytes_;
};

// Choosers for allreduces of so many bytes that have found ordinary stores into shared memory better and are about to
// try streaming ones into the results.
void PrepareStreamedResults(std::vector<std::unique_ptr<GroupSide>>& groups, size_t bytes) {
  for (auto& side : groups) {
    auto chooser = std::make_shared<StoreChooser>(StoreChooser::Setting::kMeasure, bytes);
    for (uint32_t i = 0; i < StoreChooser::kFirstTrials; ++i) {
      const StoreMode mode = chooser->Decide(StoreChooser::Use::kAllreduce, bytes);
      chooser->Record(StoreChooser::Use::kAllreduce, bytes, mode, mode == StoreMode::kOrdinary ? 1 : 9);
      EXPECT(chooser->Decide(StoreChooser::Use::kAllreduceResults, bytes) == StoreMode::kOrdinary);
    }
    side->group.stores = chooser;
  }
}

// Ordinary stores into the stages, streaming ones into results that are not the inputs.
TEST(shm_allreduce_streamed_results) {
  constexpr size_t kElems = 300007, kBytes = kElems * sizeof(float), kBatches = 3;
  for (const int n : {2, 3}) {
    ShmWorld world(n);
    auto groups = Groups(world);
    for (const bool in_place : {true, false}) {
      PrepareStreamedResults(groups, kBytes);
      const StreamedCopies copies;
      for (uint64_t seq = 1; seq <= kBatches; ++seq) {
        Run(world, groups, seq + (in_place ? 0 : kBatches),
            {DType::kFloat32, ReduceOp::kSum, {}, {kElems - 29, 29}, in_place});
      }
      const size_t results = n * kBatches * kBytes, parts = n * kBatches * 256;  // too small for streaming stores
      EXPECT(copies.bytes() <= (in_place ? 0 : results));
      EXPECT(copies.bytes() + parts >= (in_place ? 0 : results));
    }
  }
}

TEST(shm_allreduce_sums_are_sums) {  // against arithmetic of its own, not the kernels
  ShmWorld world(4);
  auto groups = Groups(world);
  for (const size_t elems : {size_t{5}, size_t{400000}}) {
    RanksAsThreads(4, [&](int rank) {
      std::vector<float> x(elems);
      for (size_t i = 0; i < elems; ++i) x[i] = static_cast<float>((i * 7 + rank * 31) % 1000);
      Batch batch;
      batch.seq = elems;
      batch.postscale = 0.25;
      batch.tensors.push_back(MakeTensor(reinterpret_cast<std::byte*>(x.data()), reinterpret_cast<std::byte*>(x.data()),
                                         {static_cast<int64_t>(elems)}));
      EXPECT_OK(Drive(world.rank(rank), Allreduce(groups[rank]->group, batch)));
      size_t wrong = 0;
      for (size_t i = 0; i < elems; ++i) {
        size_t sum = 0;
        for (int r = 0; r < 4; ++r) sum += (i * 7 + r * 31) % 1000;
        wrong += x[i] != static_cast<float>(sum) * 0.25f;
      }
      EXPECT_EQ(wrong, 0u);
    });
  }
}

// ---- resident tensors: each rank and tensor decides for itself where it lies.

void RunResident(ShmWorld& world, uint64_t seq, std::vector<std::unique_ptr<GroupSide>>& groups, uint64_t seed) {
  const int n = world.size();
  std::mt19937_64 random(seed);
  const size_t count = 1 + random() % 6;
  std::vector<size_t> elems;
  std::vector<std::vector<Bytes>> inputs(count);
  std::vector<Bytes> expected;
  // 0: ordinary memory, 1: resident in place, 2: resident input and output, 3: resident input only
  std::vector<std::vector<int>> place(count, std::vector<int>(n));
  for (size_t t = 0; t < count; ++t) {
    elems.push_back(random() % 4 == 0 ? random() % 2000 : random() % 150000);
    const bool everywhere = random() % 2;
    for (int r = 0; r < n; ++r) {
      inputs[t].push_back(RandomElements(DType::kFloat32, elems[t], seed * 100 + t * 10 + r));
      place[t][r] = everywhere ? 1 + static_cast<int>(random() % 2) : static_cast<int>(random() % 4);
    }
    expected.push_back(Combine(DType::kFloat32, ReduceOp::kSum, {1.0, 0.5}, inputs[t]));
  }
  RanksAsThreads(n, [&](int rank) {
    transport::ResidentHeap& heap = *world.rank(rank).heap();
    std::vector<Bytes> own;
    own.reserve(2 * count);
    std::vector<void*> allocated;
    const auto shared = [&](size_t bytes) {
      auto p = heap.Allocate(bytes);
      EXPECT_OK(p.status());
      allocated.push_back(*p);
      return static_cast<std::byte*>(*p);
    };
    Batch batch;
    batch.seq = seq;
    batch.postscale = 0.5;
    for (size_t t = 0; t < count; ++t) {
      const Bytes& data = inputs[t][rank];
      const int where = place[t][rank];
      std::byte* in = where == 0 ? own.emplace_back(data).data() : shared(data.size());
      if (!data.empty()) std::memcpy(in, data.data(), data.size());
      std::byte* out = where <= 1 ? in : where == 2 ? shared(data.size()) : own.emplace_back(data.size()).data();
      batch.tensors.push_back(MakeTensor(in, out, {static_cast<int64_t>(elems[t])}));
    }
    EXPECT_OK(Drive(world.rank(rank), Allreduce(groups[rank]->group, batch)));
    for (size_t t = 0; t < count; ++t) {
      if (!Same(batch.tensors[t].output, expected[t])) {
        Fail(__FILE__, __LINE__,
             "wrong: resident, rank " + std::to_string(rank) + " tensor " + std::to_string(t) + " seed " +
                 std::to_string(seed));
      }
    }
    for (void* p : allocated) EXPECT(heap.Free(p));
  });
}

// Who gives up takes its tensor away, and what others read there from then on is zero. Steps of the members in random
// order, so that one may be in the middle of its share while another waits for it only.
TEST(shm_allreduce_resident_tensors_of_who_gives_up_are_no_data) {
  const size_t elems = 1 << 20;
  const int seeds = kThreadSanitizer ? 60 : 300;
  int gave_up = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    std::mt19937_64 random(seed);
    ShmWorld world(3, 16 << 20);
    auto groups = Groups(world);
    const int victim = static_cast<int>(random() % 3);
    const uint64_t last = random() % 30;
    std::vector<Batch> batches(3);
    std::vector<std::unique_ptr<Runner>> runners(3);
    std::vector<float*> data(3);
    for (int r = 0; r < 3; ++r) {
      world.rank(r).set_inline_spins(0);
      data[r] = static_cast<float*>(*world.rank(r).heap()->Allocate(elems * sizeof(float)));
      std::fill_n(data[r], elems, static_cast<float>(r + 1));
      auto* bytes = reinterpret_cast<std::byte*>(data[r]);
      batches[r].seq = 1;
      batches[r].tensors.push_back(MakeTensor(bytes, bytes, {static_cast<int64_t>(elems)}));
      runners[r] = std::make_unique<Runner>(Allreduce(groups[r]->group, batches[r]));
    }
    for (uint64_t step = 0; step < 2000; ++step) {
      const int r = static_cast<int>(random() % 3);
      if (step == last && !runners[victim]->done()) {
        runners[victim].reset();
        world.rank(victim).Abandon(1);
        std::fill_n(data[victim], elems, 0.0f);
        ++gave_up;
      }
      if (!runners[r] || runners[r]->done()) continue;
      runners[r]->Advance();
      if (runners[r]->done() && !runners[r]->result().ok()) world.rank(r).Abandon(1);  // as its engine does
    }
    for (int r = 0; r < 3; ++r) {
      if (!runners[r]) continue;
      EXPECT(runners[r]->done());
      if (runners[r]->done() && runners[r]->result().ok() &&
          std::any_of(data[r], data[r] + elems, [](float x) { return x != 6.0f; })) {
        Fail(__FILE__, __LINE__,
             "wrong data with status OK: rank " + std::to_string(r) + " seed " + std::to_string(seed));
      }
    }
  }
  EXPECT(gave_up > seeds / 3);
}

TEST(shm_allreduce_resident_and_mixed) {
  for (const int n : {2, 3, 7}) {
    ShmWorld world(n, 16 << 20);
    auto groups = Groups(world);
    for (uint64_t round = 1; round <= 25; ++round) RunResident(world, round, groups, round + 1000 * n);
  }
}

TEST(shm_allreduce_stale_wakes_are_slept_on) {  // who was about to wake a sleeper may do so when it sleeps again
  ShmWorld world(2);
  auto groups = Groups(world);
  RanksAsThreads(2, [&](int rank) {
    std::vector<float> x(4, 1.0f);
    for (int i = 0; rank == 0 && i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      transport::WakeSleepersOn(&world.rank(1).own().words().bell, 1);
    }
    Batch batch;
    batch.seq = 1;
    auto* data = reinterpret_cast<std::byte*>(x.data());
    batch.tensors.push_back(MakeTensor(data, data, {4}));
    EXPECT_OK(Drive(world.rank(rank), Allreduce(groups[rank]->group, batch)));
    EXPECT_EQ(x[3], 2.0f);
  });
}

TEST(shm_allreduce_resident_uses_no_stage) {  // all tensors resident: the stages stay as they were
  ShmWorld world(2, 8 << 20);
  auto groups = Groups(world);
  RanksAsThreads(2, [&](int rank) {
    auto p = world.rank(rank).heap()->Allocate(4 << 20);
    auto* x = static_cast<float*>(*p);
    for (size_t i = 0; i < 1 << 20; ++i) x[i] = static_cast<float>(rank + 1);
    Batch batch;
    batch.seq = 1;
    batch.tensors.push_back(MakeTensor(static_cast<std::byte*>(*p), static_cast<std::byte*>(*p), {1 << 20}));
    EXPECT_OK(Drive(world.rank(rank), Allreduce(groups[rank]->group, batch)));
    size_t wrong = 0;
    for (size_t i = 0; i < 1 << 20; ++i) wrong += x[i] != 3.0f;
    EXPECT_EQ(wrong, 0u);
    const std::byte* stage = groups[rank]->view->stage(rank, 0);
    size_t touched = 0;
    for (size_t i = 0; i < transport::LocalView::stage_bytes(); ++i) touched += stage[i] != std::byte{0};
    EXPECT_EQ(touched, 0u);
  });
}

// How results are stored is tried on what goes through the stages; the resident way has only one way to store.
TEST(shm_allreduce_resident_results_are_no_trial) {
  constexpr size_t kElems = 1 << 20, kBytes = kElems * sizeof(float);
  ShmWorld world(2, 5 * kBytes);  // half of it is for results
  auto groups = Groups(world);
  RanksAsThreads(2, [&](int rank) {
    auto chooser = std::make_shared<StoreChooser>(StoreChooser::Setting::kMeasure, kBytes);
    groups[rank]->group.stores = chooser;
    auto* in = static_cast<std::byte*>(*world.rank(rank).heap()->Allocate(kBytes));
    auto* out = static_cast<std::byte*>(*world.rank(rank).heap()->Allocate(kBytes));
    std::memset(in, 0, kBytes);
    Batch batch;
    batch.seq = 1;
    batch.tensors.push_back(MakeTensor(in, out, {kElems}));
    EXPECT_OK(Drive(world.rank(rank), Allreduce(groups[rank]->group, batch)));
    for (uint32_t i = 0; i < StoreChooser::kFirstTrials; ++i) {
      EXPECT(chooser->Decide(StoreChooser::Use::kAllreduceResults, kBytes) == StoreMode::kOrdinary);
    }
    EXPECT(chooser->Decide(StoreChooser::Use::kAllreduceResults, kBytes) == StoreMode::kStreaming);
  });
}

}  // namespace
}  // namespace hvd::test::collective_shm_allreduce
