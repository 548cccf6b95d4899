// The express path of small collectives: it happens on all ranks or on none, whatever they do and when.
#include "engine/express/express.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>

#include "collective/shm/collectives.h"
#include "engine/express/small_collective.h"
#include "native/collective/shm/world.h"
#include "native/engine/world.h"
#include "native/harness/child.h"

namespace hvd::test::engine_express {

using namespace hvd::engine;

namespace {

void SpinFor(double us) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(us * 1e3));
  while (std::chrono::steady_clock::now() < until) {
  }
}

// True: done.
bool Sum(ShmWorld& world, int r, Express& express, uint64_t fingerprint, std::vector<float>* data) {
  const Op op(HVD_ALLREDUCE, HVD_FLOAT32, "", {static_cast<int64_t>(data->size())}, data->data(), data->data());
  const SmallCollective small(op.op, r, world.size());
  small.Bring(express.mine());
  if (!express.Meet(fingerprint, small.bytes())) return false;
  std::vector<const std::byte*> places;
  for (int m = 0; m < world.size(); ++m) places.push_back(express.of(m));
  EXPECT_OK(small.Take(places.data(), nullptr));
  return true;
}

// Sometimes late, sometimes the long way. True: done at once.
bool RunEitherWay(Engine& engine, const Op& op, std::mt19937* random) {
  if ((*random)() % 16 == 0) SpinFor((*random)() % 20);
  if ((*random)() % 8 == 0) {
    EXPECT_OK(RunOp(engine, op.op));
    return false;
  }
  std::shared_ptr<Completion> late;
  EXPECT_OK(engine.Run(&op.op, 1, 60, &late));
  if (late) EXPECT(late->done() && late->status().ok());
  return !late;
}

}  // namespace

TEST(express_happens_on_all_ranks_or_on_none) {
  const int steps = 3000;
  for (const auto& [n, crowded] : std::vector<std::pair<int, bool>>{{2, false}, {2, true}, {3, true}, {4, true}}) {
    ShmWorld world(n);
    if (crowded) world.rank(n - 1).SayCoresAreShared();
    std::vector<std::vector<char>> done(n, std::vector<char>(steps));
    std::atomic<int> met{0};
    RanksAsThreads(n, [&](int r) {
      Express express(&world.rank(r));
      std::mt19937 random(r + 17 * n);
      for (int step = 0; step < steps; ++step) {
        if (step % 50 == 0) {  // nobody may run far ahead, or nothing would happen
          for (++met; met < n * (step / 50 + 1);) std::this_thread::yield();
        }
        if (random() % 4 == 0) SpinFor(random() % 20);  // around the patience of those who have come
        if (random() % 64 == 0) continue;               // takes the long way without a look
        std::vector<float> data(1 + step % 40, static_cast<float>(r + step));
        done[r][step] = Sum(world, r, express, 1000 + step, &data);
        const float want = done[r][step] ? n * step + n * (n - 1) / 2 : r + step;
        if (data.front() != want || data.back() != want) Fail(__FILE__, __LINE__, "a wrong sum, or a changed input");
        if (!done[r][step]) express.Forget();
      }
    });
    int happened = 0;
    for (int step = 0; step < steps; ++step) {
      for (int r = 1; r < n; ++r) EXPECT_EQ(done[r][step], done[0][step]);
      happened += done[0][step];
    }
    if (crowded) EXPECT(happened > 0);  // else nobody waits long enough if the machine has other things to do
  }
}

// Ranks see different things: one is bound to a core, the other cannot see that. They wait alike all the same.
TEST(express_ranks_agree_whether_they_share_cores) {
  cpu_set_t before, first;
  EXPECT_EQ(sched_getaffinity(getpid(), sizeof before, &before), 0);
  CPU_ZERO(&first);
  for (int core = 0; CPU_COUNT(&first) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &first);
  }
  if (CPU_COUNT(&before) == 1) return;  // they do share, and see it
  const Child unbound;
  EXPECT_EQ(sched_setaffinity(getpid(), sizeof first, &first), 0);
  for (const int who : {0, 1}) {
    EngineWorld::Options options;
    options.pid = [&](int rank, int) { return rank == who ? unbound.pid() : 0; };
    EngineWorld world(2, options);
    for (int r = 0; r < 2; ++r) {
      EXPECT(world[r].DescribeJson().find("\"cores_per_rank\":0,") != std::string::npos);
    }
  }
  EXPECT_EQ(sched_setaffinity(getpid(), sizeof before, &before), 0);
  EngineWorld::Options options;
  options.pid = [&](int, int) { return unbound.pid(); };
  EngineWorld world(2, options);
  EXPECT(world[0].DescribeJson().find("\"cores_per_rank\":0,") == std::string::npos);
}

TEST(express_different_requests_happen_nowhere) {
  ShmWorld world(2);
  RanksAsThreads(2, [&](int r) {
    Express express(&world.rank(r));
    for (int step = 0; step < 200; ++step) {
      std::vector<float> data(3, 1.0f);
      EXPECT(!Sum(world, r, express, step * 2 + r, &data));
      EXPECT_EQ(data[2], 1.0f);
    }
  });
}

// Only the low half of a fingerprint fits the word; the other half is compared afterwards, by all alike.
TEST(express_compares_whole_fingerprints) {
  ShmWorld world(2);
  std::atomic<int> came{0}, both{0};
  RanksAsThreads(2, [&](int r) {
    Express express(&world.rank(r));
    for (int step = 0; step < 200; ++step) {
      std::vector<float> data(3, 1.0f);
      for (++came; came < 2 * (step + 1);) transport::Neighbours::Pause();
      EXPECT(!Sum(world, r, express, (static_cast<uint64_t>(r) << 32) | 5, &data));
      EXPECT_EQ(data[2], 1.0f);
      std::vector<float> good(900, 1.0f);
      if (Sum(world, r, express, 77 + (static_cast<uint64_t>(step) << 40), &good)) {
        EXPECT_EQ(good[899], 2.0f);
        ++both;
      }
    }
  });
  EXPECT_EQ(both % 2, 0);
}

TEST(express_and_the_long_way_together) {
  EngineWorld::Options options;
  options.spin_us = 200;
  EngineWorld world(2, options);
  std::atomic<int> at_once{0};
  RanksAsThreads(2, [&](int r) {
    std::mt19937 random(r);
    for (int step = 0; step < 2000; ++step) {
      std::vector<int32_t> data(1 + step % 9, r + step);
      const std::string name = "x" + std::to_string(step % 4);
      const Op op(HVD_ALLREDUCE, HVD_INT32, name, {static_cast<int64_t>(data.size())}, data.data(), data.data());
      at_once += RunEitherWay(world[r], op, &random);
      EXPECT_EQ(data.back(), 2 * step + 1);
    }
  });
  EXPECT_EQ(at_once % 2, 0);
}

// What the long way refuses is refused there; what only one rank asks for reaches the others as a mismatch.
TEST(express_leaves_misuse_to_the_long_way) {
  EngineWorld::Options options;
  options.spin_us = 200;
  EngineWorld world(2, options);
  RanksAsThreads(2, [&](int r) {
    std::vector<float> data(4, 1.0f);
    const auto run = [&](const Op& op) {
      std::shared_ptr<Completion> late;
      const Status s = world[r].Run(&op.op, 1, 60, &late);
      return late ? late->status() : s;
    };
    const Op op(HVD_ALLREDUCE, HVD_FLOAT32, "shapes", {int64_t{r == 0 ? 4 : 2}}, data.data(), data.data());
    EXPECT(run(op).code() == Code::kMismatch);
    Op bad(HVD_ALLREDUCE, HVD_BOOL, "average of bools", {4}, data.data(), data.data());
    bad.op.reduce_op = HVD_AVERAGE;
    EXPECT(run(bad).code() == Code::kUnsupported);
    const Op unnamed(HVD_ALLREDUCE, HVD_FLOAT32, "", {4}, data.data(), data.data());
    EXPECT_OK(run(unnamed));
    EXPECT_EQ(data[3], 2.0f);
    const Op named(HVD_ALLREDUCE, HVD_FLOAT32, "x", {4}, data.data(), data.data());
    EXPECT_OK(run(named));
    EXPECT_EQ(data[3], 4.0f);
  });
}

// What a rank has refused must be answered before its next operation of that name, as on the long way.
TEST(express_does_not_overtake_a_refusal) {
  EngineWorld::Options options;
  options.spin_us = 200;
  EngineWorld world(2, options);
  RanksAsThreads(2, [&](int r) {
    std::vector<float> data(4, 1.0f);
    const Op op(HVD_ALLREDUCE, HVD_FLOAT32, "x", {4}, data.data(), data.data());
    const auto run = [&] {
      std::shared_ptr<Completion> late;
      const Status s = world[r].Run(&op.op, 1, 60, &late);
      return late ? late->status() : s;
    };
    if (r == 1) {
      EXPECT_OK(world[1].Refuse(OpType::kAllreduce, 0, "x", "bad luck"));
    } else {
      EXPECT(run().code() == Code::kMismatch);
    }
    for (int step = 0; step < 3; ++step) EXPECT_OK(run());
    EXPECT_EQ(data[3], 8.0f);
  });
}

// Every collective, with rows and splits that differ, results in the caller's memory, in the core's, or in memory of
// the wrong size; some too large for the express path on some ranks only.
TEST(express_every_collective_gives_what_the_long_way_gives) {
  for (const int n : {1, 2, 3}) {
    EngineWorld::Options options;
    options.spin_us = 200;
    EngineWorld world(n, options);
    RanksAsThreads(n, [&](int r) {
      std::mt19937 alike(3 * n), own(r);
      for (int step = 0; step < 400; ++step) {
        const auto type = static_cast<hvd_op_type>(step % 6);
        const int columns = 1 + static_cast<int>(alike() % 3);
        const bool large = alike() % 8 == 0;
        std::vector<int> rows_of(n);
        for (int& rows : rows_of)
          rows = static_cast<int>(alike() % 5) + (large ? 4000 + static_cast<int>(alike() % 4000) : 0);
        if (type != HVD_ALLGATHER && type != HVD_ALLTOALL) std::fill(rows_of.begin(), rows_of.end(), rows_of[0]);
        const auto at = [&](int rank, int64_t i) { return static_cast<int32_t>(step + rank * 100000 + i); };
        const int64_t rows = rows_of[r];
        std::vector<int32_t> data(static_cast<size_t>(rows * columns) + 1);
        for (size_t i = 0; i < data.size(); ++i) data[i] = at(r, static_cast<int64_t>(i));
        Op op(type, HVD_INT32, step % 2 == 0 ? "x" : "", {rows, columns}, data.data(), static_cast<int32_t*>(nullptr));
        const int root = static_cast<int>(alike() % n);
        if (type == HVD_BROADCAST) op.op.root_rank = root;
        // A member keeps its last row, and sends rank 0 what cannot be dealt equally.
        const auto part = [&](int m, int to) {
          const int sent = rows_of[m] > 0 ? rows_of[m] - 1 : 0;
          return sent / n + (to == 0 ? sent % n : 0);
        };
        std::vector<int32_t> splits(n);
        for (int m = 0; m < n; ++m) splits[m] = part(r, m);
        if (type == HVD_ALLTOALL) {
          op.op.splits = splits.data();
          op.op.n_splits = n;
        }
        std::vector<int32_t> want;
        const auto append = [&](int rank, int64_t first, int64_t last) {
          for (int64_t i = first * columns; i < last * columns; ++i) want.push_back(at(rank, i));
        };
        if (type == HVD_ALLREDUCE || type == HVD_REDUCESCATTER) {
          const collective::shm::RowBlock block = type == HVD_ALLREDUCE
                                                      ? collective::shm::RowBlock{0, static_cast<size_t>(rows)}
                                                      : collective::shm::BlockOfMember(static_cast<size_t>(rows), n, r);
          for (size_t i = block.first * columns; i < (block.first + block.count) * columns; ++i) {
            int32_t sum = 0;
            for (int m = 0; m < n; ++m) sum += at(m, static_cast<int64_t>(i));
            want.push_back(sum);
          }
        } else if (type == HVD_BROADCAST) {
          append(root, 0, rows);
        } else if (type == HVD_ALLGATHER) {
          for (int m = 0; m < n; ++m) append(m, 0, rows_of[m]);
        } else if (type == HVD_ALLTOALL) {
          for (int m = 0; m < n; ++m) {
            int before = 0;
            for (int to = 0; to < r; ++to) before += part(m, to);
            append(m, before, before + part(m, r));
          }
        }
        const bool placed = type == HVD_ALLGATHER || type == HVD_ALLTOALL || type == HVD_REDUCESCATTER;
        std::vector<int32_t> output(want.size() + 1, -1);
        const bool room = !placed || own() % 2 == 0;
        if (room) op.op.output = output.data();
        if (room && placed) op.op.output_bytes = static_cast<int64_t>((want.size() + (own() % 4 == 0)) * 4);
        if (own() % 16 == 0) SpinFor(own() % 20);
        std::shared_ptr<Completion> out;
        EXPECT_OK(world[r].Run(&op.op, 1, 60, &out));
        if (out) EXPECT(out->done() && out->status().ok());
        const int32_t* got = output.data();
        if (out && out->results[0].tensor.result) got = reinterpret_cast<int32_t*>(out->results[0].tensor.output);
        if (placed && !want.empty() && !room) EXPECT(out != nullptr);
        for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i], want[i]);
        EXPECT_EQ(output.back(), -1);
        if (out && placed) {
          EXPECT_EQ(out->results[0].tensor.shape[0] * columns, static_cast<int64_t>(want.size()));
        }
      }
    });
  }
}

// Unnamed operations are counted alike, whichever way they go.
TEST(express_counts_unnamed_operations) {
  EngineWorld::Options options;
  options.spin_us = 200;
  EngineWorld world(2, options);
  RanksAsThreads(2, [&](int r) {
    std::mt19937 random(r);
    for (int step = 0; step < 500; ++step) {
      int32_t number = r + step;
      const Op op(HVD_ALLREDUCE, HVD_INT32, "", {1}, &number, &number);
      (void)RunEitherWay(world[r], op, &random);
      EXPECT_EQ(number, 2 * step + 1);
    }
  });
}

}  // namespace hvd::test::engine_express
