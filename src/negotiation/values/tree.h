// The control tree: the ranks of a host hang under the host's leader (its lowest rank), leaders under one another in a
// shallow tree with rank 0 at the top. Every rank computes the same tree from the same host numbers, and its own place
// in it. Pure.
#pragma once

#include <vector>

#include "negotiation/values/rank_set.h"

namespace hvd::negotiation {

// host_of_rank: equal numbers share a host. Returns the parent of every rank, -1 for rank 0; parent[r] < r.
std::vector<int> BuildTree(const std::vector<int>& host_of_rank, int fan_out = 16);

// The lowest rank of each host, ascending, if they send one another what small operations bring (docs/design/0012):
// with so few hosts each leader hangs directly under rank 0. Empty: they do not.
inline constexpr int kMostDirectHosts = 8;
std::vector<int> DirectLeaders(const std::vector<int>& host_of_rank);

// Number of links from rank 0 to the farthest rank.
int TreeDepth(const std::vector<int>& parent);

// A rank's place in the tree, and the ranks below each of its links. A *source* is the number of where a contribution
// came from: 0 is this rank itself, i + 1 its i-th child.
struct Place {
  int rank = 0;
  int size = 1;
  int parent = -1;
  std::vector<int> children;   // ascending
  std::vector<RankSet> below;  // per source: the ranks that speak through it
  RankSet subtree;             // all of them
  RankSet inner;               // ranks of the whole tree that others hang on, the root included
  // Where the leaders of hosts exchange small operations directly; else empty.
  std::vector<int> leaders;      // ascending
  std::vector<RankSet> host_of;  // per leader: itself and the ranks below it on its host
  int own_leader = -1;           // this rank's number among them; -1: it is none
  std::vector<int> near;         // children on this host

  bool root() const { return parent < 0; }
  int sources() const { return static_cast<int>(children.size()) + 1; }
  int SourceOfNeighbour(int child_rank) const;  // -1: not a child
  bool direct() const { return !leaders.empty(); }
  bool leads() const { return own_leader >= 0; }
  int LeaderNumber(int of_rank) const;                         // -1: that rank is none
  const RankSet& host() const { return host_of[own_leader]; }  // of a leader
  int rank_of(int source) const { return source == 0 ? rank : children[source - 1]; }
};

// leaders: as DirectLeaders gives them; rank 0 and children of it.
Place FindPlace(int rank, int size, const std::vector<int>& parent, const std::vector<int>& leaders = {});

}  // namespace hvd::negotiation
