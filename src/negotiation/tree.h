// The control tree: the ranks of a host hang under the host's leader (its lowest rank), leaders under one another in a
// shallow tree with rank 0 at the top. Every rank computes the same tree from the same host numbers, and its own place
// in it. Pure.
#pragma once

#include <vector>

#include "negotiation/rank_set.h"

namespace hvd::negotiation {

// host_of_rank: equal numbers share a host. Returns the parent of every rank, -1 for rank 0; parent[r] < r.
std::vector<int> BuildTree(const std::vector<int>& host_of_rank, int fan_out = 16);

// Number of links from rank 0 to the farthest rank.
int TreeDepth(const std::vector<int>& parent);

// Where a rank sits in the tree, and who is below which of its links. A *source* is a number for "who a contribution
// came from": 0 is this rank itself, i + 1 its i-th child.
struct Place {
  int rank = 0;
  int size = 1;
  int parent = -1;
  std::vector<int> children;   // ascending
  std::vector<RankSet> below;  // per source: the ranks that speak through it
  RankSet subtree;             // all of them
  RankSet inner;               // ranks of the whole tree that others hang on, the root included

  bool root() const { return parent < 0; }
  int sources() const { return static_cast<int>(children.size()) + 1; }
  int SourceOfNeighbour(int child_rank) const;  // -1: not a child
  int rank_of(int source) const { return source == 0 ? rank : children[source - 1]; }
};

Place FindPlace(int rank, int size, const std::vector<int>& parent);

}  // namespace hvd::negotiation
