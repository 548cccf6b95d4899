// Sends and recvs of whole engines: over shared memory and over sockets, in order, copied or not, and how they fail.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/log.h"
#include "engine/entry/send_copies.h"
#include "native/engine/world.h"

namespace hvd::test::engine_send_recv {

using namespace hvd::engine;

namespace {

using Floats = std::vector<float>;

Op Send(const Floats& data, int to, const std::string& name = "") {
  Op op(HVD_SEND, HVD_FLOAT32, name, {static_cast<int64_t>(data.size())}, data.data(), static_cast<float*>(nullptr));
  op.op.root_rank = to;
  return op;
}
Op Recv(Floats* data, int from, const std::string& name = "") {
  Op op(HVD_RECV, HVD_FLOAT32, name, {static_cast<int64_t>(data->size())}, static_cast<const float*>(nullptr),
        data->data());
  op.op.root_rank = from;
  return op;
}
std::shared_ptr<Completion> Start(Engine& e, const Op& op) {
  std::shared_ptr<Completion> c;
  EXPECT_OK(e.Submit(&op.op, 1, 0, &c));
  return c;
}
Status End(Engine& e, const std::shared_ptr<Completion>& c) {
  for (int i = 0; i < 40 && !e.Wait(*c, 0.5); ++i) {
  }
  return c->done() ? c->status() : Status(Code::kInProgress, "hangs");
}
bool Says(const Status& status, const char* what) {
  return !status.ok() && status.message().find(what) != std::string::npos;
}

EngineWorld::Options OnHosts(std::vector<int> host_of_rank) {
  EngineWorld::Options options;
  options.host_of_rank = std::move(host_of_rank);
  return options;
}
const std::vector<std::vector<int>> kPlacements = {{0, 0, 0}, {0, 1, 2}, {0, 0, 1}};
// Elements: nothing, what is copied, what is not, more than a ring holds.
const std::vector<size_t> kSizes = {0, 1, 1000, 16384, 16385, 1000003};

}  // namespace

TEST(engine_send_recv_around_a_ring) {
  for (const auto& hosts : kPlacements) {
    EngineWorld world(3, OnHosts(hosts));
    RanksAsThreads(3, [&](int r) {
      for (const size_t size : kSizes) {
        for (int step = 0; step < 5; ++step) {
          const Floats mine(size, static_cast<float>(10 * r + step));
          Floats theirs(size, -1);
          const auto sent = Start(world[r], Send(mine, (r + 1) % 3));
          EXPECT_OK(RunOp(world[r], Recv(&theirs, (r + 2) % 3).op));
          EXPECT_OK(End(world[r], sent));
          EXPECT(theirs == Floats(size, static_cast<float>(10 * ((r + 2) % 3) + step)));
        }
      }
    });
  }
}

// Rank 0 takes no part and calls nothing.
TEST(engine_send_recv_without_the_root) {
  for (const auto& hosts : kPlacements) {
    EngineWorld world(3, OnHosts(hosts));
    RanksAsThreads(3, [&](int r) {
      Floats data(50000, static_cast<float>(r));
      for (int step = 0; step < 20; ++step) {
        if (r == 1) EXPECT_OK(RunOp(world[1], Send(data, 2).op));
        if (r == 2) EXPECT_OK(RunOp(world[2], Recv(&data, 1).op));
        if (r == 2) EXPECT_EQ(data.back(), 1.0f);
      }
    });
  }
}

TEST(engine_send_recv_keeps_the_order_of_a_pair) {
  EngineWorld world(2, OnHosts({0, 0}));
  const int n = 200;
  RanksAsThreads(2, [&](int r) {
    std::vector<Floats> data;
    std::vector<std::shared_ptr<Completion>> done;
    for (int i = 0; i < n; ++i)
      data.emplace_back(i % 50 == 0 ? 100000 : 1 + i % 7, r == 0 ? static_cast<float>(i) : -1);
    for (int i = 0; i < n; ++i)
      done.push_back(Start(world[r], r == 0 ? Send(data[i], 1, "x") : Recv(&data[i], 0, "y")));
    for (int i = 0; i < n; ++i) EXPECT_OK(End(world[r], done[i]));
    for (int i = 0; i < n; ++i) EXPECT_EQ(data[i].back(), static_cast<float>(i));
  });
}

// Pairs and collectives over the same links, in another order on each rank.
TEST(engine_send_recv_beside_collectives) {
  for (const auto& hosts : kPlacements) {
    EngineWorld world(3, OnHosts(hosts));
    RanksAsThreads(3, [&](int r) {
      for (int step = 0; step < 30; ++step) {
        const Floats mine(70000, static_cast<float>(r));
        std::vector<Floats> got(3, Floats(70000, -1));
        Floats sum(30000, 1.0f);
        std::vector<std::shared_ptr<Completion>> done;
        const auto reduce = [&] {
          done.push_back(Start(world[r], Op(HVD_ALLREDUCE, HVD_FLOAT32, "sum", {30000}, sum.data(), sum.data())));
        };
        if (step % 3 == r) reduce();
        for (int k = 1; k < 3; ++k) done.push_back(Start(world[r], Recv(&got[(r + k) % 3], (r + k) % 3)));
        if (step % 3 == (r + 1) % 3) reduce();
        for (int k = 1; k < 3; ++k) done.push_back(Start(world[r], Send(mine, (r + k) % 3)));
        if (step % 3 == (r + 2) % 3) reduce();
        for (const auto& one : done) EXPECT_OK(End(world[r], one));
        EXPECT_EQ(sum.back(), 3.0f);
        for (int k = 1; k < 3; ++k) EXPECT_EQ(got[(r + k) % 3].back(), static_cast<float>((r + k) % 3));
      }
    });
  }
}

TEST(engine_send_recv_small_sends_of_both_return) {
  for (const auto& hosts : std::vector<std::vector<int>>{{0, 0}, {0, 1}}) {
    EngineWorld world(2, OnHosts(hosts));
    RanksAsThreads(2, [&](int r) {
      for (int step = 0; step < 50; ++step) {
        Floats mine(SendCopies::kMostBytes / sizeof(float), static_cast<float>(r + step));
        Floats theirs(mine.size());
        EXPECT_OK(RunOp(world[r], Send(mine, 1 - r).op));
        mine.assign(mine.size(), -1);  // it may be changed
        EXPECT_OK(RunOp(world[r], Recv(&theirs, 1 - r).op));
        EXPECT_EQ(theirs.back(), static_cast<float>(1 - r + step));
      }
    });
  }
}

TEST(engine_send_recv_copies_are_bounded) {
  EngineWorld world(2);
  const size_t elements = SendCopies::kMostBytes / sizeof(float),
               fit = SendCopies::kMostTogether / SendCopies::kMostBytes;
  const Floats data(elements, 1);
  std::shared_ptr<Completion> last;
  for (size_t i = 0; i < fit; ++i) EXPECT_OK(RunOp(world[0], Send(data, 1).op));
  const Op more = Send(data, 1);
  EXPECT_OK(world[0].Submit(&more.op, 1, HVD_SUBMIT_WILL_WAIT, &last));
  EXPECT(!last->done());
  RanksAsThreads(2, [&](int r) {
    Floats got(elements);
    for (size_t i = 0; r == 1 && i <= fit; ++i) EXPECT_OK(RunOp(world[1], Recv(&got, 0).op));
    if (r == 0) EXPECT_OK(End(world[0], last));
  });
  EXPECT_OK(RunOp(world[0], Send(data, 1).op));  // there is room again
  Floats got(elements);
  EXPECT_OK(RunOp(world[1], Recv(&got, 0).op));
}

TEST(engine_send_recv_large_sends_of_both_are_a_stall) {
  EngineWorld::Options options;
  options.stall_warning_s = 0.2;
  options.stall_shutdown_s = 0.6;
  EngineWorld world(2, options);
  RanksAsThreads(2, [&](int r) {
    const Floats data(100000, 1);
    const Status status = RunOp(world[r], Send(data, 1 - r).op);
    EXPECT(Says(status, "did not submit it within"));
  });
}

TEST(engine_send_recv_with_oneself) {
  EngineWorld world(2);
  for (const size_t size : kSizes) {
    const Floats data(size, 3);
    Floats got(size, 0), again(size, 0);
    const auto sent = Start(world[1], Send(data, 1));
    EXPECT_OK(RunOp(world[1], Recv(&got, 1).op));
    EXPECT_OK(End(world[1], sent));
    const auto received = Start(world[1], Recv(&again, 1));
    EXPECT_OK(RunOp(world[1], Send(data, 1).op));
    EXPECT_OK(End(world[1], received));
    EXPECT(got == data && again == data);
    EXPECT_OK(RunOp(world[1], Send(data, 1).op));  // of any size
    EXPECT_OK(RunOp(world[1], Recv(&got, 1).op));
  }
  Floats other(5);
  EXPECT(Says(RunOp(world[1], Recv(&other, 1).op), "has sent itself nothing"));
  const auto sent = Start(world[1], Send(Floats(4, 1), 1));
  EXPECT(Says(RunOp(world[1], Recv(&other, 1).op), "it sent float32 [4] and receives float32 [5]"));
  EXPECT(End(world[1], sent).code() == Code::kMismatch);
}

// The second request of a pair begins when the first is answered, which may be after this rank has joined.
TEST(engine_send_recv_that_came_before_a_join) {
  for (const bool copied : {true, false}) {
    EngineWorld world(2);
    RanksAsThreads(2, [&](int r) {
      const Floats first(5, 1), second(5, 2);
      Floats got(5), then(5);
      hvd_op join = {};
      join.type = HVD_JOIN;
      if (r == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_OK(RunOp(world[0], Recv(&got, 1).op));
        EXPECT_OK(RunOp(world[0], Recv(&then, 1).op));
        EXPECT(got == first && then == second);
        EXPECT_OK(RunOp(world[0], join));
        return;
      }
      std::vector<std::shared_ptr<Completion>> sends;
      for (const Floats& data : {std::cref(first), std::cref(second)}) {
        if (copied) {
          EXPECT_OK(RunOp(world[1], Send(data, 0).op));
        } else {
          sends.push_back(Start(world[1], Send(data, 0)));
        }
      }
      EXPECT_OK(RunOp(world[1], join));
      for (const auto& sent : sends) EXPECT_OK(End(world[1], sent));
    });
  }
}

TEST(engine_send_recv_to_oneself_leaves_copies_for_others) {
  EngineWorld world(2);
  RanksAsThreads(2, [&](int r) {
    const Floats large(SendCopies::kMostTogether / sizeof(float) + 1, 3), small(1, 4);
    Floats got(large.size()), one(1);
    EXPECT_OK(RunOp(world[r], Send(large, r).op));
    EXPECT_OK(RunOp(world[r], Send(small, 1 - r).op));
    EXPECT_OK(RunOp(world[r], Recv(&one, 1 - r).op));
    EXPECT_OK(RunOp(world[r], Recv(&got, r).op));
    EXPECT(one == small && got == large);
  });
}

TEST(engine_send_recv_mismatch_fails_both) {
  for (const auto& hosts : std::vector<std::vector<int>>{{0, 0}, {0, 1}}) {
    EngineWorld world(2, OnHosts(hosts));
    RanksAsThreads(2, [&](int r) {
      Floats data(r == 0 ? 100000 : 99999, 1);
      const Op op = r == 0 ? Send(data, 1) : Recv(&data, 0);
      const Status status = RunOp(world[r], op.op);
      EXPECT(status.code() == Code::kMismatch);
      EXPECT(Says(status, "rank 0 sent float32 [100000], rank 1 receives float32 [99999]"));
      Floats next(7, static_cast<float>(r));  // and the pair goes on
      EXPECT_OK(RunOp(world[r], (r == 0 ? Send(next, 1) : Recv(&next, 0)).op));
      EXPECT_EQ(next.back(), 0.0f);
    });
  }
}

// A small send has returned when it is found that nobody can take it: the next one says so, once.
TEST(engine_send_recv_failure_after_a_return) {
  EngineWorld world(2);
  EXPECT_OK(RunOp(world[0], Send(Floats(4, 1), 1).op));
  Floats got(5);
  EXPECT(RunOp(world[1], Recv(&got, 0).op).code() == Code::kMismatch);
  Status status;
  for (int i = 0; i < 500 && status.ok(); ++i) {  // until the answer has come
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    world[0].Poll();
    std::shared_ptr<Completion> c;
    if (i % 10 == 9) {
      const Floats next(5, 2);
      const Op op = Send(next, 1);
      status = world[0].Submit(&op.op, 1, HVD_SUBMIT_WILL_WAIT, &c);
    }
  }
  EXPECT(status.code() == Code::kMismatch);
  EXPECT(Says(status, "this send was not begun"));
  EXPECT(Says(status, "rank 0 sent float32 [4]"));
  EXPECT_OK(RunOp(world[0], Send(Floats(5, 3), 1).op));
  // The send that was not begun keeps its place: its recv fails as well, and the next one meets the next send.
  status = Status();
  while (status.ok() && got.back() != 3.0f) {
    got.back() = 0;
    status = RunOp(world[1], Recv(&got, 0).op);
    if (status.ok()) EXPECT_EQ(got.back(), 2.0f);  // sent before the answer had come
  }
  EXPECT(Says(status, "this send was not begun"));
  EXPECT_OK(RunOp(world[1], Recv(&got, 0).op));
  EXPECT_EQ(got.back(), 3.0f);
}

// A copy to oneself that nobody takes is nobody's loss.
TEST(engine_send_recv_to_oneself_does_not_delay_a_shutdown) {
  EngineWorld world(2);
  EXPECT_OK(RunOp(world[1], Send(Floats(4, 1), 1).op));
  const auto began = std::chrono::steady_clock::now();
  RanksAsThreads(2, [&](int r) { world.Leave(r); });
  EXPECT(std::chrono::steady_clock::now() - began < std::chrono::seconds(2));
}

// Submitted from the moment when the rank has asked for its set's removal until it is refused: the removal ends it.
TEST(engine_send_recv_to_oneself_behind_a_removal) {
  constexpr size_t kMost = 100000;  // so many are never behind it
  std::atomic<size_t> behind{0}, lost{0};
  for (int round = 0; round < 20 && lost == 0; ++round) {
    EngineWorld world(3);
    RanksAsThreads(3, [&](int r) {
      std::shared_ptr<Completion> added, removed;
      EXPECT_OK(world[r].AddSet({0, 1}, &added));
      EXPECT_OK(End(world[r], added));
      EXPECT_OK(world[r].RemoveSet(static_cast<int>(added->value), &removed));
      Floats data(4, 1);
      Op op = Recv(&data, r);
      op.op.process_set = static_cast<int32_t>(added->value);
      std::vector<std::shared_ptr<Completion>> late;
      std::shared_ptr<Completion> c;
      while (late.size() < kMost && world[r].Submit(&op.op, 1, 0, &c).ok()) late.push_back(c);
      EXPECT_OK(End(world[r], removed));
      for (size_t i = 0; i < late.size() && lost == 0; ++i)  // a lost one takes End's time
        lost += Says(End(world[r], late[i]), "was removed while it was waiting") ? 0 : 1;
      behind += late.size();
    });
  }
  EXPECT_EQ(lost.load(), 0u);
  EXPECT(behind > 0);
}

TEST(engine_send_recv_refusals) {
  EngineWorld world(3);
  Floats data(4, 1);
  std::shared_ptr<Completion> c;
  const auto refused = [&](Op op) { return world[1].Submit(&op.op, 1, 0, &c); };
  EXPECT(Says(refused(Send(data, 3, "acts")), "send 'acts': rank 3 is not a member of process set 0"));
  EXPECT(Says(refused(Recv(&data, -1)), "rank -1 is not a member"));
  Op on_device = Send(data, 2);
  on_device.op.place = 1;
  EXPECT(Says(refused(on_device), "copy it to the host's memory"));
  Op two[] = {Send(data, 2), Send(data, 2)};
  const hvd_op ops[] = {two[0].op, two[1].op};
  EXPECT(Says(world[1].Submit(ops, 2, 0, &c), "it is of one tensor"));
  // The other one fails with the reason, in its turn.
  Floats got(4);
  const auto first = Start(world[2], Recv(&got, 1)), second = Start(world[2], Recv(&got, 1));
  EXPECT(Says(End(world[2], first), "rank 1 refused it"));
  const Op good = Send(data, 2);
  EXPECT_OK(RunOp(world[1], good.op));
  EXPECT_OK(End(world[2], second));
  // And no tensor is called like a pair.
  const Op bad(HVD_ALLREDUCE, HVD_FLOAT32, "send 0->1", {4}, data.data(), data.data());
  EXPECT(Says(world[1].Submit(&bad.op, 1, 0, &c), "use another one"));
}

TEST(engine_send_recv_in_a_process_set) {
  EngineWorld world(4, OnHosts({0, 0, 1, 1}));
  RanksAsThreads(4, [&](int r) {
    std::shared_ptr<Completion> added;
    EXPECT_OK(world[r].AddSet({1, 3}, &added));
    EXPECT_OK(End(world[r], added));
    Floats data(9, static_cast<float>(r));
    Op op = r == 1 ? Recv(&data, 3) : Send(data, 1);
    op.op.process_set = static_cast<int32_t>(added->value);
    if (r % 2 == 1) EXPECT_OK(RunOp(world[r], op.op));
    if (r == 1) EXPECT_EQ(data.back(), 3.0f);
    std::shared_ptr<Completion> waits, removed;
    if (r == 1) EXPECT_OK(world[1].Submit(&op.op, 1, 0, &waits));
    EXPECT_OK(world[r].RemoveSet(static_cast<int>(added->value), &removed));
    EXPECT_OK(End(world[r], removed));
    if (r == 1) EXPECT(Says(End(world[1], waits), "was removed while it was waiting"));
  });
}

TEST(engine_send_recv_fails_when_the_other_dies) {
  EngineWorld world(3);
  Floats data(100000, 1);
  const auto sends = Start(world[1], Send(data, 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  world.Die(2);
  const Status status = End(world[1], sends);
  EXPECT(status.code() == Code::kPeerLost);
  EXPECT(Says(status, "rank 2"));
}

// What has returned is received after its sender has shut down.
TEST(engine_send_recv_outlives_its_sender) {
  for (const auto& hosts : kPlacements) {
    EngineWorld world(3, OnHosts(hosts));
    RanksAsThreads(3, [&](int r) {
      if (r == 1) {
        for (int i = 0; i < 3; ++i) EXPECT_OK(RunOp(world[1], Send(Floats(4, static_cast<float>(i)), 2).op));
        world.Leave(1);
      }
      if (r != 2) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      for (int i = 0; i < 3; ++i) {
        Floats got(4);
        EXPECT_OK(RunOp(world[2], Recv(&got, 1).op));
        EXPECT_EQ(got.back(), static_cast<float>(i));
      }
    });
  }
}

TEST(engine_send_recv_in_a_dump) {
  EngineWorld world(2);
  Floats data(100000, 1);
  const auto sent = Start(world[0], Send(data, 1, "acts"));
  const std::string dump = world[0].DumpJson();
  EXPECT(dump.find(
             "\"operation\":\"send\",\"name\":\"0->1 #1\",\"members\":[0,1],\"what\":\"send #1 from rank 0 to rank 1 "
             "('acts')\"") != std::string::npos);
  EXPECT_OK(RunOp(world[1], Recv(&data, 0).op));
  EXPECT_OK(End(world[0], sent));
}

}  // namespace hvd::test::engine_send_recv
