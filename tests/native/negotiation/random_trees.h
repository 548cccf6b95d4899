// Random trees of ranks for tests of the negotiation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "negotiation/values/tree.h"

namespace hvd::test {

using Random = std::mt19937;

inline int Pick(Random* rng, int n) { return static_cast<int>((*rng)() % static_cast<uint32_t>(n)); }

inline std::vector<int> RandomTree(Random* rng, int n) {
  std::vector<int> parent(n, -1);
  const int reach = 1 + Pick(rng, n);  // small: deep chains
  for (int r = 1; r < n; ++r) parent[r] = std::max(0, r - 1 - Pick(rng, reach));
  return parent;
}

// Ranks on hosts whose leaders exchange small operations directly, and the tree that belongs to them.
struct HostsTree {
  std::vector<int> parent, leaders;
};
inline HostsTree RandomHosts(Random* rng, int n) {
  HostsTree t{std::vector<int>(n, -1), {0}};
  std::vector<std::vector<int>> hosts = {{0}};
  for (int r = 1; r < n; ++r) {
    const int host = Pick(rng, std::min(negotiation::kMostDirectHosts, static_cast<int>(hosts.size()) + 1));
    if (host == static_cast<int>(hosts.size())) {
      hosts.emplace_back();
      t.leaders.push_back(r);
      t.parent[r] = 0;
    } else {
      t.parent[r] = hosts[host][Pick(rng, static_cast<int>(hosts[host].size()))];
    }
    hosts[host].push_back(r);
  }
  if (t.leaders.size() == 1) t.leaders.clear();
  return t;
}

}  // namespace hvd::test
