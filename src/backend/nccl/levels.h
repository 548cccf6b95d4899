// The two levels of a set on several hosts: the members of a host among themselves, and those of equal local index, one
// on each host. Pure.
#pragma once

#include <vector>

#include "collective/batch.h"

namespace hvd::backend::nccl {

// This member's place among those of its host, and theirs among all ranks.
struct Inside {
  explicit Inside(const collective::Group& group);
  int size() const { return static_cast<int>(ranks.size()); }
  // Of a global rank that is on this host.
  int PlaceOf(int rank) const;

  std::vector<int> ranks;
  int index = 0;
};

// The members of the own local index, one on each host: `group` has the same number of members on all of them.
collective::Group Counterparts(const collective::Group& group);

}  // namespace hvd::backend::nccl
