#include "backend/nccl/levels.h"

#include <algorithm>

#include "backend/introduction.h"

namespace hvd::backend::nccl {

using collective::Group;

Inside::Inside(const Group& group) {
  for (int m = 0; m < group.size(); ++m) {
    if (group.host_of[m] != group.host_of[group.index]) continue;
    if (m == group.index) index = size();
    ranks.push_back(group.ranks[m]);
  }
}

int Inside::PlaceOf(int rank) const {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

Group Counterparts(const Group& group) {
  Group across;
  std::vector<int> met(group.size(), 0);  // members of a host until now, by its first one
  std::vector<int> local(group.size());
  for (int m = 0; m < group.size(); ++m) local[m] = met[FirstOnHostOf(group, m)]++;
  for (int m = 0; m < group.size(); ++m) {
    if (local[m] != local[group.index]) continue;
    if (m == group.index) {
      across.index = across.size();
      across.local_members = {across.size()};
    }
    across.ranks.push_back(group.ranks[m]);
    across.host_of.push_back(group.host_of[m]);
    across.channels.push_back(group.channels[m]);
  }
  across.stores = group.stores;
  across.deterministic = group.deterministic;
  return across;
}

}  // namespace hvd::backend::nccl
