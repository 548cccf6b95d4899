// Operations that wait for one another under one name of the user's: an allreduce 'w' here, a broadcast 'w' there, or
// groups of two sizes. To the negotiation these are different names (see UserName), so nothing compares them, and in
// programs of several threads each may come later everywhere. That they clash shows when all ranks have been asked:
// both are older than the warning time, and no rank has submitted both. Pure.
#pragma once

#include <vector>

#include "base/status.h"
#include "negotiation/stall/stalled.h"
#include "negotiation/values/rank_set.h"

namespace hvd::negotiation {

// They can only fail, on all ranks that wait.
struct Clash {
  Status why;
  std::vector<StalledTally> tallies;
};

// submitters: per tally, the ranks that have submitted it; empty: it is over, or not known.
std::vector<Clash> FindClashes(const std::vector<StalledTally>& tallies, const std::vector<RankSet>& submitters);

}  // namespace hvd::negotiation
