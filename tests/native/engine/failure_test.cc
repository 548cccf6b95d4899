// How the engine fails: what gave up is never taken for data, who aborts is obeyed at once, and who waits for something
// broken sleeps.
#include <sys/resource.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>

#include "native/engine/world.h"

namespace hvd::test::engine_failure {

using namespace hvd::engine;

namespace {

Op Allreduce(const std::string& name, std::vector<float>* data, int set = 0) {
  Op op(HVD_ALLREDUCE, HVD_FLOAT32, name, {static_cast<int64_t>(data->size())}, data->data(), data->data());
  op.op.process_set = set;
  return op;
}

Status Submit(Engine& engine, const Op& op, uint32_t flags, std::shared_ptr<Completion>* out) {
  return engine.Submit(&op.op, 1, flags, out);
}

// Something that a thread of the test waits for.
class Gate {
 public:
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [this] { return open_; });
  }

 private:
  std::mutex mutex_;  // guards open_
  std::condition_variable changed_;
  bool open_ = false;
};

// A callback of the user's that does not return: keeps the background thread of a rank from driving.
struct Busy {
  Gate begun, end;
  Completion::Callback callback() {
    return {[](void* self, hvd_status, const char*) {
              static_cast<Busy*>(self)->begun.Open();
              static_cast<Busy*>(self)->end.Pass();
            },
            this};
  }
};

double CpuOf(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

int NewSet(EngineWorld& world, const std::vector<int>& ranks) {
  std::atomic<int> id{-1};
  RanksAsThreads(world.size(), [&](int r) {
    std::shared_ptr<Completion> c;
    EXPECT_OK(world[r].AddSet(ranks, &c));
    EXPECT(world[r].Wait(*c, 60) && c->status().ok());
    id = static_cast<int>(c->value);
  });
  return id;
}

std::vector<int> HostsApart(int n) {
  std::vector<int> hosts;
  for (int r = 0; r < n; ++r) hosts.push_back(r);
  return hosts;
}

}  // namespace

// Rank 2 gives up a broadcast. Rank 1, its root, hears of that before it hears why: until then it must not go on to the
// next batch, or rank 3 takes its progress there for that of the broadcast, and reads what nobody wrote.
TEST(engine_goes_no_further_after_a_batch_that_a_neighbour_gave_up) {
  const int n = 4;
  const size_t elems = 4 << 20;
  EngineWorld world(n);
  const int set = NewSet(world, {1, 2, 3});
  std::vector<Busy> busy(n);
  RanksAsThreads(n, [&](int r) {
    std::vector<float> data(100000, 1.0f);
    std::shared_ptr<Completion> c;
    const bool slow = r == 0 || r == 2;
    if (!slow) Sleep(0.1);  // so that the others' callback is there in time
    EXPECT_OK(Submit(world[r], Allreduce("first", &data), 0, &c));
    if (slow) {
      EXPECT(c->AddCallback(busy[r].callback()) && busy[r].begun.Pass());
    } else {
      EXPECT(world[r].Wait(*c, 10));
    }
  });
  std::atomic<bool> decided{false}, given_up{false};
  std::atomic<int> submitted{0};
  RanksAsThreads(n, [&](int r) {
    if (r == 0) {  // decides, and is then busy: the reason comes late
      while (submitted < 3) world[0].Poll();
      for (int i = 0; i < 200; ++i, Sleep(1e-3)) world[0].Poll();
      decided = true;
      while (!given_up) Sleep(1e-3);
      Sleep(0.1);
      return busy[0].end.Open();
    }
    std::vector<float> big(elems, -1.0f), small(16, 1.0f);
    for (size_t i = 0; r == 1 && i < elems; ++i) big[i] = static_cast<float>(i);
    Op broadcast(HVD_BROADCAST, HVD_FLOAT32, "big", {static_cast<int64_t>(elems)}, big.data(), big.data());
    broadcast.op.root_rank = 1;
    broadcast.op.process_set = set;
    std::shared_ptr<Completion> first, next;
    EXPECT_OK(Submit(world[r], broadcast, HVD_SUBMIT_WILL_WAIT, &first));
    EXPECT_OK(Submit(world[r], Allreduce("small", &small, set), HVD_SUBMIT_WILL_WAIT, &next));
    ++submitted;
    if (r == 2) {
      world[2].Poll();
      while (!decided) Sleep(1e-3);
      world[2].Abort(Status(Code::kInternal, "rank 2 has had enough"));
      given_up = true;
      busy[2].end.Open();
      return;
    }
    EXPECT(world[r].Wait(*first, 20));
    if (first->done() && first->status().ok()) {
      size_t wrong = 0;
      for (size_t i = 0; i < elems; ++i) wrong += big[i] != static_cast<float>(i);
      EXPECT_EQ(wrong, size_t{0});
    } else {
      EXPECT(first->status().message().find("rank 2 has had enough") != std::string::npos);
    }
    EXPECT(world[r].Wait(*next, 20) && !next->status().ok());
  });
}

// The other thread keeps the driver role for as long as it waits: it must obey.
TEST(engine_abort_is_obeyed_by_whoever_drives) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, HostsApart(2)}) {
    EngineWorld::Options options;
    options.host_of_rank = hosts;
    EngineWorld world(2, options);
    std::vector<float> data(4, 1.0f);
    std::shared_ptr<Completion> c;
    EXPECT_OK(Submit(world[0], Allreduce("never", &data), HVD_SUBMIT_WILL_WAIT, &c));
    std::thread waiter([&] {
      while (!c->done()) world[0].Wait(*c, 1.0);
    });
    Sleep(0.1);
    const double called = NowS();
    world[0].Abort(Status(Code::kInternal, "enough"));
    EXPECT(NowS() - called < 0.1);
    EXPECT(c->done());
    waiter.join();
    EXPECT(NowS() - called < 0.1);
    EXPECT_EQ(c->status().message(), std::string("enough"));
  }
}

TEST(engine_shutdown_keeps_its_time_while_another_thread_waits) {
  EngineWorld world(2);
  std::vector<float> data(4, 1.0f);
  std::shared_ptr<Completion> c;
  EXPECT_OK(Submit(world[0], Allreduce("never", &data), HVD_SUBMIT_WILL_WAIT, &c));
  std::thread waiter([&] {
    while (!c->done()) world[0].Wait(*c, 1.0);
  });
  Sleep(0.1);
  const double called = NowS();
  world[0].Shutdown(0.2);
  EXPECT(NowS() - called < 0.3);
  waiter.join();
  EXPECT(c->status().code() == Code::kShutdown);
}

TEST(engine_waits_without_end_asleep) {
  EngineWorld world(2);
  std::vector<float> a(4, 1.0f), b(4, 1.0f);
  std::shared_ptr<Completion> first, second;
  EXPECT_OK(Submit(world[0], Allreduce("a", &a), HVD_SUBMIT_WILL_WAIT, &first));
  EXPECT_OK(Submit(world[0], Allreduce("b", &b), HVD_SUBMIT_WILL_WAIT, &second));
  std::thread driver([&] { world[0].Wait(*first, INFINITY); });
  Sleep(0.05);
  double cpu = 1;
  std::thread other([&] {
    world[0].Wait(*second, INFINITY);
    cpu = CpuOf(CLOCK_THREAD_CPUTIME_ID);
  });
  Sleep(0.5);
  EXPECT_OK(RunOp(world[1], Allreduce("a", &a).op));
  EXPECT_OK(RunOp(world[1], Allreduce("b", &b).op));
  driver.join();
  other.join();
  EXPECT(cpu < 0.1);
}

// A control ring that cannot be understood is read no further, however much is in it.
TEST(engine_broken_ring_costs_nothing) {
  EngineWorld world(2);
  std::vector<float> data(4, 1.0f);
  std::shared_ptr<Completion> c;
  EXPECT_OK(Submit(world[0], Allreduce("never", &data), 0, &c));
  transport::Arena theirs(world.MapRegion(1), 2);
  const unsigned char frame[] = {3, 0, 0, 0, 9, 9, 9};  // a length, and no record
  std::memcpy(theirs.ring(transport::RingKind::kControl, 0), frame, sizeof frame);
  theirs.ring_words(transport::RingKind::kControl, 0).written.store(sizeof frame);
  EXPECT(world[0].Wait(*c, 10) && !c->status().ok());
  theirs.ring_words(transport::RingKind::kControl, 0).written.store(20);
  world[0].Poll();
  const double before = CpuOf(CLOCK_PROCESS_CPUTIME_ID);
  Sleep(0.5);
  EXPECT(CpuOf(CLOCK_PROCESS_CPUTIME_ID) - before < 0.1);
}

// Rank 0 has more to say to rank 1 than its ring takes, and says goodbye while that rank does not listen.
TEST(engine_who_leaves_waits_until_all_is_sent) {
  EngineWorld world(2);
  const int set = NewSet(world, {0});
  Busy busy;
  std::vector<float> data(4, 1.0f), theirs(4, 1.0f);
  std::shared_ptr<Completion> last;
  RanksAsThreads(2, [&](int r) {
    std::shared_ptr<Completion> c;
    if (r == 0) Sleep(0.1);  // so that the callback of rank 1 is there in time
    EXPECT_OK(Submit(world[r], Allreduce("first", r == 0 ? &data : &theirs), 0, &c));
    if (r == 0) {
      EXPECT(world[0].Wait(*c, 10));
    } else {
      EXPECT(c->AddCallback(busy.callback()) && busy.begun.Pass());
    }
  });
  EXPECT_OK(Submit(world[1], Allreduce("never", &theirs), 0, &last));
  for (int i = 0; i < 100; ++i)  // in names alone twice as much as the ring holds
    EXPECT_OK(RunOp(world[0], Allreduce(std::string(1300, 'n') + std::to_string(i), &data, set).op));
  std::atomic<bool> left{false};
  std::thread leaver([&] {
    world[0].Shutdown(60);
    left = true;
    world.Die(0);
  });
  Sleep(0.2);
  EXPECT(!left);
  busy.end.Open();
  EXPECT(world[1].Wait(*last, 10));
  EXPECT(last->status().code() == Code::kShutdown);
  leaver.join();
}

// Rank 0 decides what the set may do, and has no part in it: nobody calls there, so nobody but the bell wakes it.
TEST(engine_set_without_its_root_rings_it_at_once) {
  EngineWorld::Options options;
  options.spin_us = 3e6;  // before a waiting thread rings those that are idle
  EngineWorld world(3, options);
  const int set = NewSet(world, {1, 2});
  RanksAsThreads(3, [&](int r) {
    if (r == 0) return;
    std::vector<float> data(1, 1.0f);
    const double begin = NowS();
    EXPECT_OK(RunOp(world[r], Allreduce("x", &data, set).op));
    EXPECT(NowS() - begin < 1);
    EXPECT_EQ(data[0], 2.0f);
  });
}

}  // namespace hvd::test::engine_failure
