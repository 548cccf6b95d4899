// Which ranks have a core of their own.
#include "engine/wake/cores.h"

#include <unistd.h>

#include <cerrno>

#include "native/harness/child.h"
#include "native/harness/harness.h"

namespace hvd::test::engine_cores {
namespace {

using namespace hvd::engine;

CoreSet BoundNow() { return CoresOf({0})[0]; }

void Bind(pid_t pid, const CoreSet& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  EXPECT_EQ(sched_setaffinity(pid, sizeof set, &set), 0);
}

TEST(cores_bound_ranks_have_their_own) {
  EXPECT(EachHasACore({}));
  EXPECT(EachHasACore({CoreSet({0}), CoreSet({1})}));
  EXPECT(EachHasACore({CoreSet({5, 7000}), CoreSet({5, 7000})}));
  EXPECT(!EachHasACore({CoreSet({0, 1}), CoreSet({0, 1}), CoreSet({0, 1})}));
  EXPECT(!EachHasACore({CoreSet({3}), CoreSet({3})}));
}

TEST(cores_enough_of_them_are_not_enough) {  // ranks 0 and 1 share core 0, the others have more than they need
  EXPECT(!EachHasACore({CoreSet({0}), CoreSet({0}), CoreSet({1, 2, 3})}));
}

TEST(cores_a_rank_moves_for_another) {
  EXPECT(EachHasACore({CoreSet({0, 1}), CoreSet({0, 2}), CoreSet({0})}));
  EXPECT(EachHasACore({CoreSet({0, 1}), CoreSet({1, 2}), CoreSet({2, 3}), CoreSet({0})}));
  EXPECT(!EachHasACore({CoreSet({0, 1}), CoreSet({1, 2}), CoreSet({2, 0}), CoreSet({0})}));
}

TEST(cores_of_processes) {
  const CoreSet own = BoundNow();
  EXPECT(!own.empty());
  const Child child;
  for (const int core : own) {
    Bind(child.pid(), {core});
    const std::vector<CoreSet> cores = CoresOf({0, getpid(), child.pid(), int64_t{1} << 30});
    EXPECT(cores == std::vector<CoreSet>({own, own, {core}, own}));  // the last is out of sight: like this one
  }
}

// What a rank thinks of itself is what the others see of it: its main thread.
TEST(cores_of_a_bound_thread_are_those_of_its_process) {
  const CoreSet own = BoundNow();
  RanksAsThreads(1, [&](int) {
    Bind(0, {own.back()});
    EXPECT(BoundNow() == own);
  });
}

TEST(cores_of_machines_with_more_than_a_cpu_set_holds) {
  const auto ask = [](pid_t pid, size_t bytes, cpu_set_t* set) {
    if (bytes < 8192 / 8) {
      errno = EINVAL;
      return -1;
    }
    CPU_SET_S(pid == getpid() ? 3 : 5000, bytes, set);
    return 0;
  };
  EXPECT(CoresOf({0, 1}, ask) == std::vector<CoreSet>({{3}, {5000}}));
  const auto refuse = [](pid_t, size_t, cpu_set_t*) {
    errno = EINVAL;
    return -1;
  };
  EXPECT(!EachHasACore(CoresOf({0, 1}, refuse)));  // nothing known: they may share
}

}  // namespace
}  // namespace hvd::test::engine_cores
