#include "negotiation/tree.h"

#include <algorithm>
#include <unordered_map>

namespace hvd {

std::vector<int> BuildTree(const std::vector<int>& host_of_rank, int fan_out) {
  fan_out = std::max(fan_out, 1);
  std::vector<int> parent(host_of_rank.size(), -1);
  std::vector<int> leaders;
  std::unordered_map<int, std::vector<int>> below;  // host -> its ranks, ascending, the leader first
  for (int r = 0; r < static_cast<int>(host_of_rank.size()); ++r) {
    std::vector<int>& ranks = below[host_of_rank[r]];
    const int place = static_cast<int>(ranks.size());
    ranks.push_back(r);
    if (place > 0) {
      parent[r] = ranks[(place - 1) / fan_out];
      continue;
    }
    const int index = static_cast<int>(leaders.size());
    leaders.push_back(r);
    if (index > 0) parent[r] = leaders[(index - 1) / fan_out];
  }
  return parent;
}

int TreeDepth(const std::vector<int>& parent) {
  std::vector<int> depth(parent.size(), 0);
  int deepest = 0;
  for (size_t r = 1; r < parent.size(); ++r) {
    depth[r] = depth[parent[r]] + 1;
    deepest = std::max(deepest, depth[r]);
  }
  return deepest;
}

}  // namespace hvd
