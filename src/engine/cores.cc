#include "engine/cores.h"

namespace hvd {
namespace {

class Matching {
 public:
  explicit Matching(const std::vector<cpu_set_t>& allowed) : allowed_(allowed), rank_on_(CPU_SETSIZE, -1) {}

  // Finds a core for the rank, moving others where that helps.
  bool Place(int rank) {
    tried_.assign(CPU_SETSIZE, false);
    return Augment(rank);
  }

 private:
  bool Augment(int rank) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &allowed_[rank]) || tried_[core]) continue;
      tried_[core] = true;
      if (rank_on_[core] < 0 || Augment(rank_on_[core])) {
        rank_on_[core] = rank;
        return true;
      }
    }
    return false;
  }

  const std::vector<cpu_set_t>& allowed_;
  std::vector<int> rank_on_;
  std::vector<bool> tried_;
};

}  // namespace

bool EachHasACore(const std::vector<cpu_set_t>& allowed) {
  Matching matching(allowed);
  for (size_t rank = 0; rank < allowed.size(); ++rank) {
    if (!matching.Place(static_cast<int>(rank))) return false;
  }
  return true;
}

std::vector<cpu_set_t> CoresOf(const std::vector<int64_t>& pids) {
  cpu_set_t own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof own, &own) != 0) CPU_SET(0, &own);
  std::vector<cpu_set_t> cores;
  for (const int64_t pid : pids) {
    cpu_set_t theirs;
    const bool seen = pid > 0 && sched_getaffinity(static_cast<pid_t>(pid), sizeof theirs, &theirs) == 0;
    cores.push_back(seen ? theirs : own);
  }
  return cores;
}

}  // namespace hvd
