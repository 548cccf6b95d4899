#include "engine/wake/cores.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace hvd::engine {
namespace {

// More than any machine has; a kernel that wants more room than for so many is not asked again.
constexpr int kMostCores = 1 << 20;

class Matching {
 public:
  explicit Matching(const std::vector<CoreSet>& allowed) : allowed_(allowed) {
    int cores = 0;
    for (const CoreSet& set : allowed) {
      for (const int core : set) cores = std::max(cores, core + 1);
    }
    rank_on_.assign(cores, -1);
  }

  // Finds a core for the rank, moving others where that helps.
  bool Place(int rank) {
    tried_.assign(rank_on_.size(), false);
    return Augment(rank);
  }

 private:
  bool Augment(int rank) {
    for (const int core : allowed_[rank]) {
      if (tried_[core]) continue;
      tried_[core] = true;
      if (rank_on_[core] < 0 || Augment(rank_on_[core])) {
        rank_on_[core] = rank;
        return true;
      }
    }
    return false;
  }

  const std::vector<CoreSet>& allowed_;
  std::vector<int> rank_on_;
  std::vector<bool> tried_;
};

// A set of cores for the kernel. Without a set: there was no memory for it.
struct Mask {
  static void Free(cpu_set_t* set) { CPU_FREE(set); }
  std::unique_ptr<cpu_set_t, decltype(&Free)> set{nullptr, &Free};
  int room = 0;  // cores

  explicit Mask(int cores) : set(CPU_ALLOC(cores), &Free), room(cores) {
    if (set != nullptr) CPU_ZERO_S(bytes(), set.get());
  }
  size_t bytes() const { return CPU_ALLOC_SIZE(room); }
};

// Without room: out of sight. The kernel refuses a set that has no room for every core that the machine could have,
// which may be more than cpu_set_t's 1024.
Mask MaskOf(pid_t pid, const AskAffinity& ask) {
  for (int room = CPU_SETSIZE; room <= kMostCores; room *= 2) {
    Mask mask(room);
    if (mask.set == nullptr) break;
    if (ask(pid, mask.bytes(), mask.set.get()) == 0) return mask;
    if (errno != EINVAL) break;
  }
  return Mask(0);
}

// Empty: out of sight.
CoreSet CoresOfOne(pid_t pid, const AskAffinity& ask) {
  const Mask mask = MaskOf(pid, ask);
  CoreSet cores;
  for (int core = 0; core < mask.room; ++core) {
    if (CPU_ISSET_S(core, mask.bytes(), mask.set.get())) cores.push_back(core);
  }
  return cores;
}

}  // namespace

bool EachHasACore(const std::vector<CoreSet>& allowed) {
  Matching matching(allowed);
  for (size_t rank = 0; rank < allowed.size(); ++rank) {
    if (!matching.Place(static_cast<int>(rank))) return false;
  }
  return true;
}

std::vector<CoreSet> CoresOf(const std::vector<int64_t>& pids, const AskAffinity& ask) {
  const CoreSet own = CoresOfOne(getpid(), ask);
  std::vector<CoreSet> cores;
  for (const int64_t pid : pids) {
    CoreSet theirs;
    if (pid > 0) theirs = CoresOfOne(static_cast<pid_t>(pid), ask);
    if (theirs.empty()) theirs = own;
    cores.push_back(std::move(theirs));
  }
  return cores;
}

CoreSet CoresOfThread() { return CoresOfOne(0, sched_getaffinity); }

void MoveThread(int core) {
  const Mask before = MaskOf(0, sched_getaffinity);
  if (core >= before.room || !CPU_ISSET_S(core, before.bytes(), before.set.get())) return;
  const Mask only(before.room);
  if (only.set == nullptr) return;
  CPU_SET_S(core, only.bytes(), only.set.get());
  if (sched_setaffinity(0, only.bytes(), only.set.get()) == 0)
    (void)sched_setaffinity(0, before.bytes(), before.set.get());
}

}  // namespace hvd::engine
