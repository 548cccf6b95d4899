// Whether a change of process sets on which the members have agreed is allowed. Pure.
#pragma once

#include "base/status.h"
#include "negotiation/state/set_table.h"
#include "negotiation/values/rank_set.h"
#include "negotiation/values/request.h"

namespace hvd::negotiation {

// A request of kAddSetType that all ranks sent, or the members of the new set. *ranks: the members of the new set.
Status CheckAddSet(const Request& request, const SetTable& sets, int job_size, RankSet* ranks);
Status CheckRemoveSet(const Request& request, const SetTable& sets);

}  // namespace hvd::negotiation
