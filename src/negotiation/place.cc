#include "negotiation/place.h"

#include <algorithm>

namespace hvd {

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

}  // namespace hvd
