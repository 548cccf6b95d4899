// The whole engine, ranks as threads: what one rank alone cannot show is here; the algorithms have tests of their own.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "base/log.h"
#include "native/engine/world.h"

namespace hvd::test::engine_engine {

using namespace hvd::engine;

namespace {

Op Allreduce(const std::string& name, std::vector<float>* data) {
  return Op(HVD_ALLREDUCE, HVD_FLOAT32, name, {static_cast<int64_t>(data->size())}, data->data(), data->data());
}

std::vector<float> Filled(size_t n, float value) { return std::vector<float>(n, value); }

}  // namespace

TEST(engine_allreduce_sums_over_ranks_and_repeats) {
  for (const int n : {1, 2, 3, 4}) {
    EngineWorld world(n);
    RanksAsThreads(n, [&](int r) {
      for (int step = 0; step < 200; ++step) {
        std::vector<float> data = Filled(step % 7 == 0 ? 40000 : 1 + step, static_cast<float>(r + step));
        EXPECT_OK(
            RunOp(world[r], Allreduce("x" + std::to_string(step % 5) + "." + std::to_string(data.size()), &data).op));
        const float want = static_cast<float>(n * step + n * (n - 1) / 2);
        EXPECT_EQ(data.front(), want);
        EXPECT_EQ(data.back(), want);
      }
    });
  }
}

TEST(engine_async_submissions_in_any_order) {
  const int n = 3, tensors = 60;
  EngineWorld world(n);
  RanksAsThreads(n, [&](int r) {
    for (int step = 0; step < 10; ++step) {
      std::vector<std::vector<float>> data;
      std::vector<std::shared_ptr<Completion>> done(tensors);
      for (int t = 0; t < tensors; ++t) data.push_back(Filled(100 * t, 1.0f));
      for (int k = 0; k < tensors; ++k) {
        const int t = (k * 7 + r * 13 + step) % tensors;  // another order on every rank
        const Op op = Allreduce("t" + std::to_string(t), &data[t]);
        EXPECT_OK(world[r].Submit(&op.op, 1, 0, &done[t]));
      }
      for (int t = 0; t < tensors; ++t) {
        EXPECT(world[r].Wait(*done[t], 60));
        EXPECT(done[t]->status().ok());
        if (!data[t].empty()) EXPECT_EQ(data[t].back(), static_cast<float>(n));
      }
    }
  });
}

// Nobody waits in the engine: the background threads alone must finish every batch, however often they fall asleep in
// the middle of one. (More ranks than cores, so that they do.)
TEST(engine_background_threads_lose_no_ring) {
  const int n = 6;
  EngineWorld world(n);
  RanksAsThreads(n, [&](int r) {
    std::vector<float> data = Filled(300000, 1.0f);
    for (int step = 0; step < 150; ++step) {
      std::atomic<bool> arrived{false};
      std::shared_ptr<Completion> c;
      const Op op = Allreduce("alone", &data);
      EXPECT_OK(world[r].Submit(&op.op, 1, 0, &c));
      const Completion::Callback callback{
          [](void* flag, hvd_status, const char*) { static_cast<std::atomic<bool>*>(flag)->store(true); }, &arrived};
      if (c->AddCallback(callback)) {
        const double give_up = NowS() + 10;
        while (!arrived && NowS() < give_up) std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      if (!c->done()) return Fail(__FILE__, __LINE__, "rank " + std::to_string(r) + " sleeps through its ring");
    }
  });
}

// Rank 0's first thread sleeps in the driver role; what its second one submits, without waiting, must reach the other
// rank all the same: the first one's own operation depends on it.
TEST(engine_sleeping_driver_learns_of_submissions) {
  EngineWorld world(2);
  std::vector<float> a = Filled(4, 1.0f), b = Filled(4, 1.0f);
  std::shared_ptr<Completion> waited, other;
  std::thread second;
  RanksAsThreads(2, [&](int r) {
    if (r == 1) {
      std::vector<float> data = Filled(4, 1.0f);
      EXPECT_OK(RunOp(world[1], Allreduce("b", &data).op));
      EXPECT_OK(RunOp(world[1], Allreduce("a", &data).op));
      return;
    }
    const Op first = Allreduce("a", &a), then = Allreduce("b", &b);
    second = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // so that the first one has fallen asleep
      EXPECT_OK(world[0].Submit(&then.op, 1, 0, &other));
    });
    EXPECT_OK(world[0].Submit(&first.op, 1, HVD_SUBMIT_WILL_WAIT, &waited));
    const double begin = NowS();
    EXPECT(world[0].Wait(*waited, 20));
    EXPECT(NowS() - begin < 5);
    second.join();
    EXPECT(world[0].Wait(*other, 20));
  });
}

TEST(engine_several_threads_wait_at_once) {
  const int n = 2, threads = 4;
  EngineWorld world(n);
  RanksAsThreads(n, [&](int r) {
    RanksAsThreads(threads, [&](int t) {
      for (int step = 0; step < 100; ++step) {
        std::vector<float> data = Filled(10, 2.0f);
        EXPECT_OK(RunOp(world[r], Allreduce("thread" + std::to_string(t), &data).op));
        EXPECT_EQ(data[9], 2.0f * n);
      }
    });
  });
}

TEST(engine_mismatch_names_ranks_and_engine_goes_on) {
  const int n = 3;
  EngineWorld world(n);
  std::vector<std::string> messages(n);
  RanksAsThreads(n, [&](int r) {
    std::vector<float> data = Filled(r == 2 ? 4 : 8, 1.0f);
    const Status s = RunOp(world[r], Allreduce("w", &data).op);
    EXPECT(s.code() == Code::kMismatch);
    messages[r] = s.message();
    std::vector<float> again = Filled(8, 1.0f);
    EXPECT_OK(RunOp(world[r], Allreduce("w", &again).op));
    EXPECT_EQ(again[0], 3.0f);
  });
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
  EXPECT(messages[0].find("rank 2") != std::string::npos);
}

TEST(engine_local_refusal_reaches_the_others) {
  EngineWorld world(2);
  RanksAsThreads(2, [&](int r) {
    std::vector<float> data = Filled(6, 1.0f);
    Op op(HVD_ALLTOALL, HVD_FLOAT32, "a", {6}, data.data(), static_cast<float*>(nullptr));
    const int32_t bad[] = {5, 5}, good[] = {3, 3};
    op.op.splits = r == 0 ? bad : good;
    op.op.n_splits = 2;
    const Status s = RunOp(world[r], op.op);
    EXPECT(s.code() == (r == 0 ? Code::kInvalidArgument : Code::kMismatch));
    if (r == 1) EXPECT(s.message().find("add up to 10") != std::string::npos);
    op.op.splits = good;
    EXPECT_OK(RunOp(world[r], op.op));
  });
}

TEST(engine_duplicate_name_stays_local) {
  EngineWorld world(2);
  std::atomic<bool> refused{false};
  RanksAsThreads(2, [&](int r) {
    std::vector<float> a = Filled(3, 1.0f), b = Filled(3, 1.0f);
    std::shared_ptr<Completion> first, second;
    const Op op = Allreduce("same", &a), twin = Allreduce("same", &b);
    if (r == 0) {
      EXPECT_OK(world[0].Submit(&op.op, 1, 0, &first));
      EXPECT(world[0].Submit(&twin.op, 1, 0, &second).code() == Code::kInvalidArgument);
      refused = true;
      EXPECT(world[0].Wait(*first, 60));
      EXPECT(first->status().ok());
    } else {
      while (!refused) std::this_thread::yield();
      EXPECT_OK(RunOp(world[1], op.op));
    }
    EXPECT_EQ(a[2], 2.0f);
  });
}

TEST(engine_process_sets_and_join) {
  const int n = 4;
  EngineWorld world(n);
  RanksAsThreads(n, [&](int r) {
    std::shared_ptr<Completion> c;
    EXPECT_OK(world[r].AddSet({1, 3}, &c));
    EXPECT(world[r].Wait(*c, 60) && c->status().ok());
    const int id = static_cast<int>(c->value);
    std::vector<float> data = Filled(5, static_cast<float>(r));
    Op op = Allreduce("in set", &data);
    op.op.process_set = id;
    const Status s = RunOp(world[r], op.op);
    if (r % 2 == 1) {
      EXPECT_OK(s);
      EXPECT_EQ(data[0], 4.0f);
    } else {
      EXPECT(s.code() == Code::kInvalidArgument);
    }
    // Rank r has r + 1 batches; who has none left joins.
    for (int k = 0; k <= r; ++k) {
      std::vector<float> x = Filled(4, 1.0f);
      EXPECT_OK(RunOp(world[r], Allreduce("uneven", &x).op));
      EXPECT_EQ(x[0], static_cast<float>(n - k));
    }
    hvd_op join = {};
    join.type = HVD_JOIN;
    std::shared_ptr<Completion> done;
    EXPECT_OK(RunOp(world[r], join, &done));
    EXPECT_EQ(done->value, 3);
    EXPECT_OK(world[r].RemoveSet(id, &c));
    EXPECT(world[r].Wait(*c, 60) && c->status().ok());
    EXPECT(world[r].sets().Ranks(id).empty());
  });
}

TEST(engine_death_fails_pending_and_next) {
  EngineWorld world(3);
  std::atomic<int> pending{0};
  RanksAsThreads(2, [&](int r) {  // rank 2 never calls
    std::vector<float> data = Filled(3, 1.0f);
    std::shared_ptr<Completion> c;
    const Op op = Allreduce("x", &data);
    EXPECT_OK(world[r].Submit(&op.op, 1, 0, &c));
    for (++pending; pending < 2;) std::this_thread::yield();
    if (r == 0) world.Die(2);
    const double begin = NowS();
    EXPECT(world[r].Wait(*c, 60));
    EXPECT(NowS() - begin < 1.0);
    EXPECT(c->status().code() == Code::kPeerLost);
    EXPECT(c->status().message().find("rank 2") != std::string::npos);
    EXPECT(RunOp(world[r], Allreduce("y", &data).op).code() == Code::kPeerLost);
  });
}

TEST(engine_goodbye_is_not_a_death) {
  EngineWorld world(3);
  std::vector<int> ids(3);
  RanksAsThreads(3, [&](int r) {
    std::shared_ptr<Completion> c;
    EXPECT_OK(world[r].AddSet({0, 1}, &c));
    EXPECT(world[r].Wait(*c, 60));
    ids[r] = static_cast<int>(c->value);
  });
  world.Leave(2);
  world.Die(2);  // its process ends too
  RanksAsThreads(2, [&](int r) {
    std::vector<float> data = Filled(3, 1.0f);
    Op op = Allreduce("pair", &data);
    op.op.process_set = ids[r];
    EXPECT_OK(RunOp(world[r], op.op));
    EXPECT(RunOp(world[r], Allreduce("all", &data).op).code() == Code::kShutdown);
  });
}

// The end of a process that leaves in order races with its goodbye, which reaches the others through rank 0 or a rank
// that leads others: whoever sees the end first must not take it for a death.
TEST(engine_end_of_who_leaves_is_never_taken_for_a_death) {
  for (int round = 0; round < 100; ++round) {
    const int n = 2 + round % 3;
    EngineWorld world(n);
    const int leaver = round % n;
    std::vector<std::shared_ptr<Completion>> pending(n);
    std::vector<std::vector<float>> data(n, Filled(3, 1.0f));
    RanksAsThreads(n, [&](int r) {
      EXPECT_OK(RunOp(world[r], Allreduce("all", &data[r]).op));
      if (r == leaver) {
        world[r].Shutdown(5);
        return world.Die(r);
      }
      const Op op = Allreduce("without", &data[r]);
      EXPECT_OK(world[r].Submit(&op.op, 1, 0, &pending[r]));
      EXPECT(world[r].Wait(*pending[r], 60));
      EXPECT(pending[r]->status().code() == Code::kShutdown);
    });
  }
}

// And who dies is believed dead at once, whatever the others are doing.
TEST(engine_death_is_noticed_at_once) {
  std::vector<double> took;
  for (int round = 0; round < 100; ++round) {
    EngineWorld world(3);
    std::atomic<double> died{0};
    std::atomic<int> done{0};
    RanksAsThreads(3, [&](int r) {
      std::vector<float> data = Filled(3, 1.0f);
      for (int k = 0; k < round % 4; ++k) EXPECT_OK(RunOp(world[r], Allreduce("all", &data).op));
      ++done;
      if (r == 2) {
        while (done < 3) std::this_thread::yield();
        died = NowS();
        return world.Die(2);
      }
      EXPECT(RunOp(world[r], Allreduce("without", &data).op).code() == Code::kPeerLost);
    });
    took.push_back(NowS() - died);
    world[2].Abort(Status(Code::kInternal, "nobody tells the dead"), /*tell_others=*/false);
  }
  std::sort(took.begin(), took.end());
  EXPECT(took[took.size() / 2] < 0.05);
}

TEST(engine_across_hosts) {
  EngineWorld::Options options;
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{0, 1}, {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 2, 3}}) {
    options.host_of_rank = hosts;
    const int n = static_cast<int>(hosts.size());
    EngineWorld world(n, options);
    RanksAsThreads(n, [&](int r) {
      for (const size_t elems : {size_t{0}, size_t{1}, size_t{1000}, size_t{300000}}) {
        std::vector<float> data = Filled(elems, static_cast<float>(r + 1));
        EXPECT_OK(RunOp(world[r], Allreduce("n" + std::to_string(elems), &data).op));
        if (elems > 0) EXPECT_EQ(data.back(), static_cast<float>(n * (n + 1) / 2));
      }
    });
  }
}

namespace {

// The number of the set on each of three ranks.
std::vector<int> WithSetOfRanks1And2(EngineWorld* world) {
  std::vector<int> ids(3);
  RanksAsThreads(3, [&](int r) {
    std::shared_ptr<Completion> c;
    EXPECT_OK((*world)[r].AddSet({1, 2}, &c));
    EXPECT((*world)[r].Wait(*c, 60));
    ids[r] = static_cast<int>(c->value);
  });
  return ids;
}

}  // namespace

// Rank 0, the root of the negotiation, wants nothing itself: it must pass on what comes over its sockets, also when its
// background thread was woken while another thread had the role.
TEST(engine_across_hosts_threads_and_a_root_that_waits_for_nobody) {
  EngineWorld::Options options;
  options.host_of_rank = {0, 1, 1};
  EngineWorld world(3, options);
  const std::vector<int> ids = WithSetOfRanks1And2(&world);
  RanksAsThreads(3, [&](int r) {
    RanksAsThreads(2, [&](int t) {
      for (int step = 0; step < 300; ++step) {
        std::vector<float> data = Filled(10, 1.0f);
        const std::string name = "thread" + std::to_string(t);
        const bool pair = t == 1;
        if (pair && r == 0) continue;
        Op op = Allreduce(name, &data);
        if (pair) op.op.process_set = ids[r];
        const double begin = NowS();
        EXPECT_OK(RunOp(world[r], op.op));
        EXPECT(NowS() - begin < 10);
        EXPECT_EQ(data[9], pair ? 2.0f : 3.0f);
      }
    });
  });
}

// A thread of the root that has got its result leaves the sockets hushed for a moment: what comes then is passed on all
// the same, and soon.
TEST(engine_across_hosts_a_root_that_has_just_waited_passes_on_what_comes) {
  EngineWorld::Options options;
  options.host_of_rank = {0, 1, 2};
  EngineWorld world(3, options);
  const std::vector<int> ids = WithSetOfRanks1And2(&world);
  for (int step = 0; step < 50; ++step) {
    RanksAsThreads(3, [&](int r) {
      std::vector<float> data = Filled(10, 1.0f);
      EXPECT_OK(RunOp(world[r], Allreduce("all", &data).op));
      EXPECT_EQ(data[9], 3.0f);
      if (r == 0) return;
      Op pair = Allreduce("pair", &data);
      pair.op.process_set = ids[r];
      const double begin = NowS();
      EXPECT_OK(RunOp(world[r], pair.op));
      EXPECT(NowS() - begin < 10);
      EXPECT_EQ(data[9], 6.0f);
    });
  }
}

}  // namespace hvd::test::engine_engine
