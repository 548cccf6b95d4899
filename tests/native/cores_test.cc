// Which ranks have a core of their own.
#include "engine/cores.h"

#include <unistd.h>

#include "harness.h"

namespace hvd::test {
namespace {

cpu_set_t Cores(std::initializer_list<int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return set;
}

TEST(cores_bound_ranks_have_their_own) {
  EXPECT(EachHasACore({}));
  EXPECT(EachHasACore({Cores({0}), Cores({1})}));
  EXPECT(EachHasACore({Cores({5, 700}), Cores({5, 700})}));
  EXPECT(!EachHasACore({Cores({0, 1}), Cores({0, 1}), Cores({0, 1})}));
  EXPECT(!EachHasACore({Cores({3}), Cores({3})}));
}

TEST(cores_enough_of_them_are_not_enough) {  // ranks 0 and 1 share core 0, the others have more than they need
  EXPECT(!EachHasACore({Cores({0}), Cores({0}), Cores({1, 2, 3})}));
}

TEST(cores_a_rank_moves_for_another) {
  EXPECT(EachHasACore({Cores({0, 1}), Cores({0, 2}), Cores({0})}));
  EXPECT(EachHasACore({Cores({0, 1}), Cores({1, 2}), Cores({2, 3}), Cores({0})}));
  EXPECT(!EachHasACore({Cores({0, 1}), Cores({1, 2}), Cores({2, 0}), Cores({0})}));
}

TEST(cores_of_processes) {
  const std::vector<cpu_set_t> cores = CoresOf({0, getpid(), int64_t{1} << 30});
  EXPECT_EQ(cores.size(), size_t{3});
  EXPECT(CPU_COUNT(&cores[0]) > 0);
  EXPECT(CPU_EQUAL(&cores[0], &cores[1]));
  EXPECT(CPU_EQUAL(&cores[0], &cores[2]));  // out of sight: like this one
}

}  // namespace
}  // namespace hvd::test
