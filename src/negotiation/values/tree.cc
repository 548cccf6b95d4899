#include "negotiation/values/tree.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace hvd::negotiation {
namespace {

// Its place among them; -1: it is not there.
int NumberIn(const std::vector<int>& ascending, int rank) {
  const auto it = std::lower_bound(ascending.begin(), ascending.end(), rank);
  return it != ascending.end() && *it == rank ? static_cast<int>(it - ascending.begin()) : -1;
}

}  // namespace

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

std::vector<int> DirectLeaders(const std::vector<int>& host_of_rank) {
  std::vector<int> leaders;
  std::unordered_set<int> hosts;
  for (int r = 0; r < static_cast<int>(host_of_rank.size()); ++r) {
    if (hosts.insert(host_of_rank[r]).second) leaders.push_back(r);
  }
  const int n = static_cast<int>(leaders.size());
  return n >= 2 && n <= kMostDirectHosts ? leaders : std::vector<int>();
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
  const int child = NumberIn(children, child_rank);
  return child >= 0 ? child + 1 : -1;
}

namespace {

void FindLeaders(const std::vector<int>& parent, const std::vector<int>& leaders, Place* p) {
  p->leaders = leaders;
  p->own_leader = NumberIn(leaders, p->rank);
  p->host_of.resize(leaders.size());
  std::vector<int> leader_of(static_cast<size_t>(p->size), 0);
  for (int r = 0; r < p->size; ++r) {
    const int own = NumberIn(leaders, r);
    leader_of[r] = own >= 0 ? own : leader_of[parent[r]];  // parent[r] < r: known already
    p->host_of[leader_of[r]].Append(r, r);
  }
  for (const int child : p->children) {
    if (NumberIn(leaders, child) < 0) p->near.push_back(child);
  }
}

}  // namespace

int Place::LeaderNumber(int of_rank) const { return NumberIn(leaders, of_rank); }

Place FindPlace(int rank, int size, const std::vector<int>& parent, const std::vector<int>& leaders) {
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
  if (!leaders.empty()) FindLeaders(parent, leaders, &p);
  return p;
}

}  // namespace hvd::negotiation
