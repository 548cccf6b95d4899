// Data that leaves beside the mark, between two ranks on two hosts: random operations of two threads per rank, so that
// what was sent early is used, or finds another batch before it, or is void.
#include <numeric>
#include <random>
#include <thread>

#include "native/engine/world.h"

namespace hvd::test::engine_ahead {
namespace {

using namespace hvd::engine;

EngineWorld::Options TwoHosts() {
  EngineWorld::Options options;
  options.host_of_rank = {0, 1};
  return options;
}

int32_t Value(int rank, int64_t row, int step) { return static_cast<int32_t>(1000 * rank + 7 * row + step); }

// One operation that both ranks make alike, but for the rows of what may differ.
struct Case {
  hvd_op_type type;
  std::string name;
  int step;
  int64_t rows[2];

  static Case Draw(std::mt19937* random, int thread, int step) {
    static const hvd_op_type kTypes[] = {HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL, HVD_REDUCESCATTER};
    static const int64_t kRows[] = {2, 1000, 6000, 17000, 60000, 150000};
    const int type = static_cast<int>((*random)() % 5);
    const int64_t rows = kRows[(*random)() % 6];
    const bool differ = type == 1 || type == 3;
    const int64_t others = differ && (*random)() % 4 == 0 ? kRows[(*random)() % 6] : rows;
    // The same name comes back with the same shape, so that it is known.
    const std::string name = "t" + std::to_string(thread) + "-" + std::to_string(type) + "-" + std::to_string(rows) +
                             "-" + std::to_string(others);
    return {kTypes[type], name, step, {rows, others}};
  }

  std::vector<int32_t> Input(int rank) const {
    std::vector<int32_t> data(static_cast<size_t>(rows[rank]));
    for (size_t i = 0; i < data.size(); ++i) data[i] = Value(rank, static_cast<int64_t>(i), step);
    return data;
  }
  int root() const { return step % 2; }

  // Of a rank, in the order of the ranks.
  std::vector<int32_t> Expected(int rank) const {
    const std::vector<int32_t> all[2] = {Input(0), Input(1)};
    std::vector<int32_t> out;
    const auto add = [&out](const std::vector<int32_t>& from, size_t first, size_t count) {
      out.insert(out.end(), from.begin() + static_cast<ptrdiff_t>(first),
                 from.begin() + static_cast<ptrdiff_t>(first + count));
    };
    switch (type) {
      case HVD_BROADCAST:
        return all[root()];
      case HVD_ALLGATHER:
        for (const auto& one : all) add(one, 0, one.size());
        return out;
      case HVD_ALLTOALL:
        for (const auto& one : all) add(one, rank * (one.size() / 2), one.size() / 2);
        return out;
      default:
        break;
    }
    for (size_t i = 0; i < all[0].size(); ++i) out.push_back(all[0][i] + all[1][i]);
    const size_t half = out.size() / 2;  // the rows are even
    if (type != HVD_REDUCESCATTER) return out;
    return {out.begin() + static_cast<ptrdiff_t>(rank * half), out.begin() + static_cast<ptrdiff_t>((rank + 1) * half)};
  }
};

void Check(const Case& c, int rank, const Completion& done, const std::vector<int32_t>& own) {
  EXPECT_OK(done.status());
  if (!done.status().ok()) return;
  const std::vector<int32_t> want = c.Expected(rank);
  const bool placed = c.type == HVD_ALLREDUCE || c.type == HVD_BROADCAST;
  const auto* const at = placed ? own.data() : reinterpret_cast<const int32_t*>(done.results[0].tensor.output);
  if (!placed) EXPECT_EQ(done.results[0].tensor.shape[0], static_cast<int64_t>(want.size()));
  EXPECT(std::equal(want.begin(), want.end(), at));
}

void RunCase(Engine& engine, const Case& c, int rank, bool waits) {
  std::vector<int32_t> data = c.Input(rank);
  const bool placed = c.type == HVD_ALLREDUCE || c.type == HVD_BROADCAST;
  Op op(c.type, HVD_INT32, c.name, {c.rows[rank]}, data.data(), placed ? data.data() : nullptr);
  if (c.type == HVD_BROADCAST) op.op.root_rank = c.root();
  std::shared_ptr<Completion> done;
  EXPECT_OK(engine.Submit(&op.op, 1, waits ? HVD_SUBMIT_WILL_WAIT : 0, &done));
  if (done == nullptr) return;
  EXPECT(engine.Wait(*done, 60));
  Check(c, rank, *done, data);
}

}  // namespace

// One thread each: all of it leaves at once.
TEST(engine_ahead_of_one_thread) {
  EngineWorld world(2, TwoHosts());
  RanksAsThreads(2, [&](int rank) {
    std::mt19937 random(5);
    for (int step = 0; step < (kSanitizer ? 100 : 500); ++step)
      RunCase(world[rank], Case::Draw(&random, 0, step), rank, /*waits=*/true);
  });
}

// Two threads that begin when they like: what one has sent early stands before, or in the middle of, what the other
// does.
TEST(engine_ahead_of_two_threads) {
  for (unsigned seed = 0; seed < (kSanitizer ? 2 : 6); ++seed) {
    EngineWorld world(2, TwoHosts());
    RanksAsThreads(2, [&](int rank) {
      RanksAsThreads(2, [&](int thread) {
        std::mt19937 random(10 * seed + static_cast<unsigned>(thread)), own(100 * seed + static_cast<unsigned>(rank));
        for (int step = 0; step < (kSanitizer ? 60 : 200); ++step) {
          const Case c = Case::Draw(&random, thread, step);
          if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
          // Each rank chooses whether it waits; if it does not, what the other sends early is void.
          RunCase(world[rank], c, rank, own() % 8 != 0);
        }
      });
    });
  }
}

// One rank always asks without waiting: what the other sends early is void each time.
TEST(engine_ahead_is_void_when_the_other_does_not_wait) {
  EngineWorld world(2, TwoHosts());
  RanksAsThreads(2, [&](int rank) {
    std::mt19937 random(3);
    for (int step = 0; step < (kSanitizer ? 60 : 300); ++step)
      RunCase(world[rank], Case::Draw(&random, 0, step), rank, /*waits=*/rank == 0);
  });
}

// A tensor of another shape under a known name: an error on both ranks, and the job goes on.
TEST(engine_ahead_of_a_mismatch) {
  EngineWorld world(2, TwoHosts());
  RanksAsThreads(2, [&](int rank) {
    for (int step = 0; step < 30; ++step) {
      const bool wrong = step % 5 == 4;
      std::vector<int32_t> data(wrong && rank == step % 2 ? 9000 : 10000, rank + 1);
      Op op(HVD_ALLREDUCE, HVD_INT32, "x", {static_cast<int64_t>(data.size())}, data.data(), data.data());
      const Status status = RunOp(world[rank], op.op);
      EXPECT_EQ(status.ok(), !wrong);
      if (!wrong) EXPECT(data.front() == 3 && data.back() == 3);
    }
  });
}

// The other rank dies before it calls: the caller gets the error, and soon.
TEST(engine_ahead_to_a_rank_that_dies) {
  EngineWorld world(2, TwoHosts());
  RanksAsThreads(2, [&](int rank) {
    for (int step = 0; step < 5; ++step) {
      std::vector<int32_t> data(10000, 1);
      Op op(HVD_ALLREDUCE, HVD_INT32, "x", {10000}, data.data(), data.data());
      if (step == 4 && rank == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        world.Die(1);
        world[1].Abort(Status(Code::kInternal, "this rank is dead"), /*tell_others=*/false);
        continue;
      }
      const double begin = NowS();
      EXPECT_EQ(RunOp(world[rank], op.op).ok(), step < 4);
      EXPECT(NowS() - begin < 5);
    }
  });
}

}  // namespace hvd::test::engine_ahead
