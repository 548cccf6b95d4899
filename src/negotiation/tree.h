// The control tree: the ranks of a host hang under the host's leader (its lowest rank), leaders under one another in a
// shallow tree with rank 0 at the top. Every rank computes the same tree from the same host numbers. Pure.
#pragma once

#include <vector>

namespace hvd {

// host_of_rank: equal numbers share a host. Returns the parent of every rank, -1 for rank 0; parent[r] < r.
std::vector<int> BuildTree(const std::vector<int>& host_of_rank, int fan_out = 16);

// Number of links from rank 0 to the farthest rank.
int TreeDepth(const std::vector<int>& parent);

}  // namespace hvd
