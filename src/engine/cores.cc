#include "engine/cores.h"

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

// Empty: out of sight. The kernel refuses a set that has no room for every core that the machine could have, which may
// be more than cpu_set_t's 1024.
CoreSet CoresOfOne(pid_t pid, const AskAffinity& ask) {
  for (int room = CPU_SETSIZE; room <= kMostCores; room *= 2) {
    const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(room), free_set);
    const size_t bytes = CPU_ALLOC_SIZE(room);
    if (set == nullptr) break;
    CPU_ZERO_S(bytes, set.get());
    if (ask(pid, bytes, set.get()) == 0) {
      CoreSet cores;
      for (int core = 0; core < room; ++core) {
        if (CPU_ISSET_S(core, bytes, set.get())) cores.push_back(core);
      }
      return cores;
    }
    if (errno != EINVAL) break;
  }
  return {};
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

}  // namespace hvd::engine
