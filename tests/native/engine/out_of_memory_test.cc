// A rank without memory fails its operation, says so, and does not let the others wait.
#include <atomic>
#include <new>

#include "native/engine/executor_world.h"
#include "native/engine/world.h"
#include "native/harness/scarce_memory.h"

namespace hvd::test::engine_out_of_memory {
namespace {

using namespace hvd::engine;

bool Says(const Status& status, const std::string& what) {
  if (status.message().find(what) != std::string::npos) return true;
  std::cerr << "  \"" << status.message() << "\" lacks \"" << what << "\"" << std::endl;
  return false;
}

// Every allocation of rank 1 in its turn fails, once or from then on: in the coroutines, their frames, their vectors.
// Returns whether there was one more.
bool RunWithout(int64_t granted, bool lasting, const std::vector<int>& hosts, const Item& item) {
  ExecutorWorld world(hosts, Link::kMemory);
  for (const int rank : item.ranks) world.Add(rank, item);
  bool met = false;
  {
    ScarceMemory scarce(granted, lasting);
    world.Advance(1);
    met = scarce.met();
  }
  for (int idle = 0; idle < 3;) {
    bool moved = false;
    for (int rank = 0; rank < world.size(); ++rank) moved |= world.Advance(rank);
    idle = moved ? 0 : idle + 1;
  }
  const Status& why = world.why(1);
  if (!why.ok()) EXPECT(met && (Says(why, "memory")));
  if (!why.ok() && !lasting) EXPECT(Says(why, "'x5'") && Says(why, "on rank 1"));
  for (const int rank : item.ranks) {
    if (world.Succeeded(rank, item)) EXPECT(world.Right(rank, item));
    if (why.ok()) EXPECT(world.Succeeded(rank, item));
  }
  return met;
}

TEST(out_of_memory_in_a_collective_is_its_failure) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 0}, {0, 1, 2}, {0, 0, 1}}) {
    for (const OpType type : kTypes) {
      for (const size_t elems : {size_t{300}, size_t{200000}}) {
        if (kSanitizer && elems > 300) continue;
        const Item item{5, {0, 1, 2}, type, elems, 0, true};
        for (const bool lasting : {false, true}) {
          int64_t granted = 0;
          while (granted < 500 && RunWithout(granted, lasting, hosts, item)) ++granted;
          EXPECT(granted > 0 && granted < 500);
        }
      }
    }
  }
}

Op Sum(const std::string& name, std::vector<float>* data) {
  return Op(HVD_ALLREDUCE, HVD_FLOAT32, name, {static_cast<int64_t>(data->size())}, data->data(), data->data());
}

// Also in what surrounds a collective: negotiating, sending frames, keeping the books.
TEST(out_of_memory_in_the_engine_fails_it_on_all_ranks) {
  int64_t granted = 0;
  for (bool met = true; met && granted < 500; ++granted) {
    EngineWorld world(2);
    RanksAsThreads(2, [&](int r) {
      std::vector<float> data(3000, 1.0f);
      const Op op = Sum("x", &data);
      std::shared_ptr<Completion> c;
      Status status = world[r].Submit(&op.op, 1, HVD_SUBMIT_WILL_WAIT, &c);
      if (!status.ok()) return EXPECT_EQ(r, 0);  // rank 1 has failed already
      if (r == 1) {
        ScarceMemory scarce(granted);
        for (int i = 0; i < 20 && !world[1].Wait(*c, 1.0); ++i) {
        }
        met = scarce.met();
      } else {
        EXPECT(world[0].Wait(*c, 20));
      }
      if (!c->done()) return Fail(__FILE__, __LINE__, "rank " + std::to_string(r) + " waits without end");
      status = c->status();
      if (r == 1 && !status.ok()) EXPECT(status.code() == Code::kResource && Says(status, "out of memory"));
      // The frame with the reason may be what there was no memory for.
      if (r == 0 && !status.ok()) EXPECT(status.code() == Code::kResource || status.code() == Code::kInternal);
      if (status.ok()) EXPECT(data[0] == 2.0f && data[2999] == 2.0f);
    });
  }
  EXPECT(granted > 1 && granted < 500);
}

TEST(out_of_memory_for_the_stand_in_of_a_joined_rank) {
  EngineWorld world(3);
  std::vector<std::vector<float>> data(2, std::vector<float>(2000000, 1.0f));
  const NoLargeMemory none(4 << 20);
  RanksAsThreads(3, [&](int r) {
    hvd_op join = {};
    join.type = HVD_JOIN;
    const Status status = RunOp(world[r], r == 2 ? join : Sum("large", &data[r]).op);
    EXPECT(status.code() == Code::kResource);
    EXPECT(Says(status, "allreduce 'large': rank 2 has joined and has no memory for the 8000000 bytes"));
  });
}

// The long way and the express path.
TEST(out_of_memory_for_a_result_names_rank_and_tensor) {
  for (const int rows : {2000000, 10000}) {
    EngineWorld::Options options;
    options.spin_us = -1;
    EngineWorld world(2, options);
    std::atomic<int> ready{0};
    const size_t bytes = rows * 2 * sizeof(float);
    const NoLargeMemory none(bytes);
    RanksAsThreads(2, [&](int r) {  // rank 0 receives everything
      std::vector<float> data(rows, 1.0f);
      Op op(HVD_ALLTOALL, HVD_FLOAT32, "rows", {rows}, data.data(), static_cast<float*>(nullptr));
      const int32_t splits[] = {rows, 0};
      op.op.splits = splits;
      op.op.n_splits = 2;
      for (++ready; ready < 2;) std::this_thread::yield();
      std::shared_ptr<Completion> c;
      EXPECT_OK(world[r].Run(&op.op, 1, 20, &c));
      if (r == 0)
        EXPECT(c && Says(c->status(), "alltoall 'rows' on rank 0: no memory for a result of " + std::to_string(bytes)));
    });
  }
}

}  // namespace
}  // namespace hvd::test::engine_out_of_memory
