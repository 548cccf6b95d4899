#include "negotiation/tree.h"

#include <algorithm>
#include <unordered_map>

namespace hvd::negotiation {

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

int Place::SourceOfNeighbour(int child_rank) const {
  auto it = std::lower_bound(children.begin(), children.end(), child_rank);
  return it != children.end() && *it == child_rank ? static_cast<int>(it - children.begin()) + 1 : -1;
}

Place FindPlace(int rank, int size, const std::vector<int>& parent) {
  Place p;
  p.rank = rank;
  p.size = size;
  p.parent = rank < static_cast<int>(parent.size()) ? parent[rank] : -1;
  std::vector<int> source(size, -1);  // -1: not below
  std::vector<char> inner(size, 0);
  source[rank] = 0;
  p.below.emplace_back(RankSet::Of(rank));
  for (int r = 1; r < size; ++r) {
    inner[parent[r]] = 1;
    if (parent[r] == rank) {
      p.children.push_back(r);
      p.below.emplace_back();
      source[r] = static_cast<int>(p.children.size());
    } else if (r != rank) {
      source[r] = source[parent[r]];  // parent[r] < r: known already
    }
    if (source[r] > 0) p.below[source[r]].Append(r, r);
  }
  inner[0] = 1;
  for (int r = 0; r < size; ++r) {
    if (inner[r]) p.inner.Append(r, r);
  }
  for (const RankSet& b : p.below) p.subtree.AddAll(b);
  return p;
}

}  // namespace hvd::negotiation
