// Many batches of one order log over shared memory: overlapping groups in random order, members that give up, and real
// processes over memfd.
#include <sys/wait.h>

#include "native/collective/log_items.h"

namespace hvd::test::collective_shm_log {
namespace {

using namespace hvd::collective;
using namespace hvd::collective::shm;

Task Start(const Group& group, Batch& batch) {
  switch (batch.type) {
    case OpType::kAllgather:
      return Allgather(group, batch);
    case OpType::kBroadcast:
      return Broadcast(group, batch);
    case OpType::kAlltoall:
      return Alltoall(group, batch);
    case OpType::kReducescatter:
      return Reducescatter(group, batch);
    case OpType::kBarrier:
      return Barrier(group, batch);
    default:
      return Allreduce(group, batch);
  }
}

// This rank's part of an item. `memory` holds input and output (allreduce, broadcast: in place).
Batch BatchOf(const Item& item, int member, std::byte* memory) {
  Batch batch;
  batch.seq = item.seq;
  batch.type = item.type;
  batch.root = item.root;
  if (item.type == OpType::kBarrier) return batch;
  const Bytes input = InputOf(item, member);
  if (!input.empty()) std::memcpy(memory, input.data(), input.size());
  batch.tensors.push_back(MakeTensor(memory, memory, {static_cast<int64_t>(item.elems)}));
  const int n = static_cast<int>(item.ranks.size());
  for (int m = 0; m < n; ++m)
    batch.tensors[0].splits.push_back(static_cast<int64_t>(BlockOfMember(item.elems, n, m).count));
  return batch;
}

bool Right(const Item& item, int member, const Batch& batch) {
  if (item.type == OpType::kBarrier) return true;
  const Bytes expected = Expected(item, member);
  const Tensor& t = batch.tensors[0];
  if (t.result != nullptr) return ResultIs(t, expected);
  return Same(t.output, expected);
}

// All batches of the log that this rank is in; returns how many went wrong.
int RunLog(transport::Neighbours& neighbours, const std::vector<Item>& log) {
  std::vector<std::unique_ptr<GroupSide>> groups;  // one per set, as in the engine
  int wrong = 0;
  for (const Item& item : log) {
    const int member = MemberOf(item, neighbours.self());
    if (member < 0) continue;
    GroupSide* side = nullptr;
    for (auto& g : groups) {
      if (g->group.ranks == item.ranks) side = g.get();
    }
    if (side == nullptr) side = groups.emplace_back(MakeGroup(neighbours, item.ranks)).get();
    Bytes memory(item.elems * 4);
    Batch batch = BatchOf(item, member, memory.data());
    const Status status = Drive(neighbours, Start(side->group, batch));
    if (!status.ok()) {
      Fail(__FILE__, __LINE__, status.message());
      neighbours.Abandon(item.seq);
      return wrong + 1;
    }
    wrong += !Right(item, member, batch);
  }
  return wrong;
}

TEST(shm_overlapping_groups_in_log_order) {
  for (const int n : {3, 6, 8}) {
    ShmWorld world(n);
    const std::vector<Item> log = RandomLog(n, 160, n);
    RanksAsThreads(n, [&](int rank) { EXPECT_EQ(RunLog(world.rank(rank), log), 0); });
  }
}

// The number of a batch in a progress word begins again from 0, at the sixth batch of the log.
TEST(shm_progress_wraps_around) {
  const int n = 3;
  ShmWorld world(n);
  std::vector<Item> log = RandomLog(n, 20, 5);
  const uint64_t before = (uint64_t{1} << (64 - transport::LocalView::kStepBits)) - 1 - log[5].seq;
  for (Item& item : log) item.seq += before;
  for (int r = 0; r < n; ++r) {  // all have finished batch `before`
    world.rank(r).own().words().progress =
        (before << transport::LocalView::kStepBits) | transport::LocalView::kFinalStep;
  }
  RanksAsThreads(n, [&](int rank) { EXPECT_EQ(RunLog(world.rank(rank), log), 0); });
}

// ---- a member gives up

// Rank `quitter` is resumed at most `resumes` times. Whoever calls the batch done must hold the right data. Returns how
// many did.
int RunWithQuitter(const Item& item, int quitter, int resumes, bool resident) {
  const int n = static_cast<int>(item.ranks.size());
  ShmWorld world(n, resident ? 4 << 20 : 0);
  std::atomic<int> done{0};
  RanksAsThreads(n, [&](int rank) {
    transport::Neighbours& neighbours = world.rank(rank);
    auto side = MakeGroup(neighbours, world.all());
    Bytes own(item.elems * 4);
    std::byte* memory = own.data();
    if (resident) memory = static_cast<std::byte*>(*neighbours.heap()->Allocate(own.size()));
    Batch batch = BatchOf(item, rank, memory);
    if (rank == quitter) {
      Runner runner(Start(side->group, batch));
      for (int i = 0; i < resumes && !runner.done();) {
        if (runner.Advance()) {
          ++i;
        } else {
          sched_yield();
        }
      }
      if (!runner.done()) return neighbours.Abandon(item.seq);
      EXPECT(Right(item, rank, batch));
      done.fetch_add(1);
      return neighbours.Abandon(item.seq + 1);
    }
    const Status status = Drive(neighbours, Start(side->group, batch));
    if (!status.ok()) {
      EXPECT(status.code() == Code::kInternal);
      return neighbours.Abandon(item.seq);
    }
    EXPECT(Right(item, rank, batch));
    done.fetch_add(1);
  });
  return done.load();
}

TEST(shm_member_that_never_starts_fails_the_others) {
  for (const OpType type : kTypes) {
    for (const size_t elems : {size_t{5}, size_t{3000}, size_t{400000}}) {
      Item item{7, {0, 1, 2}, type, elems, 1};
      EXPECT_EQ(RunWithQuitter(item, 1, 0, false), 0);  // 1 is the root
      // A small broadcast is one-sided: it does not need a receiver.
      if (type != OpType::kBroadcast) EXPECT_EQ(RunWithQuitter(item, 2, 0, false), 0);
    }
  }
}

TEST(shm_member_that_gives_up_half_way_never_yields_wrong_data) {
  for (const OpType type : kTypes) {
    for (int resumes = 1; resumes < 12; resumes += kThreadSanitizer ? 3 : 1) {
      const Item item{9, {0, 1, 2}, type, resumes % 2 ? size_t{500000} : size_t{9000}, 0};
      RunWithQuitter(item, resumes % 3, resumes, false);
    }
  }
  for (int resumes = 1; resumes < 8; ++resumes) {
    RunWithQuitter({9, {0, 1, 2}, OpType::kAllreduce, 400000, 0}, resumes % 3, resumes, true);
  }
}

// Resumed once, the quitter yields or waits before it has stored its whole share: the result would lack the rest.
TEST(shm_resident_reduction_needs_every_member_to_the_end) {
  EXPECT_EQ(RunWithQuitter({9, {0, 1, 2}, OpType::kAllreduce, 400000, 0}, 1, 1, true), 0);
}

// ---- real processes

int RunProcess(const std::vector<int>& memory, const std::vector<int>& doorbells, size_t bytes, int rank, int ready,
               int go) {
  std::vector<transport::Neighbours::Member> members;
  const int n = static_cast<int>(memory.size());
  for (int m = 0; m < n; ++m) {
    auto region = transport::MapMemfd(memory[m], bytes);
    if (!region.ok()) return 100;
    members.push_back({m, *region, Fd(doorbells[m])});
  }
  auto neighbours = transport::Neighbours::Create(std::move(members), rank);
  char byte = 0;
  if (!neighbours.ok() || write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 1) return 101;
  int wrong = RunLog(**neighbours, RandomLog(n, 60, 99));
  // Resident tensors, which only separate address spaces really test.
  std::vector<int> all;
  for (int r = 0; r < n; ++r) all.push_back(r);
  for (uint64_t round = 0; round < 4; ++round) {
    const Item item{1000 + round, all, OpType::kAllreduce, 70000 + 11 * round, 0};
    auto side = MakeGroup(**neighbours, all);
    if ((rank + round) % 3 == 0) (void)(*neighbours)->heap()->Allocate(4096);  // offsets differ between the ranks
    auto shared = (*neighbours)->heap()->Allocate(item.elems * 4);
    if (!shared.ok()) return 102;
    Batch batch = BatchOf(item, rank, static_cast<std::byte*>(*shared));
    if (!Drive(**neighbours, Start(side->group, batch)).ok() || !Right(item, rank, batch)) ++wrong;
  }
  return wrong;
}

TEST(shm_processes_over_memfd) {
  constexpr int kRanks = 3;
  const size_t bytes = transport::Arena::FixedBytes(kRanks) + (8 << 20);
  std::vector<int> memory, doorbells;
  int ready[2], go[2];
  EXPECT(pipe(ready) == 0 && pipe(go) == 0);
  for (int r = 0; r < kRanks; ++r) {
    memory.push_back(memfd_create("shm_test", MFD_ALLOW_SEALING));
    EXPECT(ftruncate(memory[r], static_cast<off_t>(bytes)) == 0 && fcntl(memory[r], F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    doorbells.push_back(eventfd(0, EFD_NONBLOCK));
  }
  std::vector<pid_t> children;
  for (int r = 0; r < kRanks; ++r) {
    const pid_t child = fork();
    if (child == 0) _exit(RunProcess(memory, doorbells, bytes, r, ready[1], go[0]));
    children.push_back(child);
  }
  close(ready[1]);
  char byte = 0;
  for (int r = 0; r < kRanks; ++r) EXPECT(read(ready[0], &byte, 1) == 1);  // all arenas are made
  for (int r = 0; r < kRanks; ++r) EXPECT(write(go[1], &byte, 1) == 1);
  for (const pid_t child : children) {
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT_EQ(status, 0);
  }
  for (const auto& fds : {memory, doorbells, {ready[0], go[0], go[1]}}) {
    for (const int fd : fds) close(fd);
  }
}

}  // namespace
}  // namespace hvd::test::collective_shm_log
