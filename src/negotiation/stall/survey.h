// What a node's marks say about operations that wait. Only reads.
#pragma once

#include <optional>
#include <vector>

#include "negotiation/stall/stalled.h"
#include "negotiation/state/marks.h"
#include "negotiation/state/set_table.h"

namespace hvd::negotiation {

std::vector<StalledTally> Incomplete(const Marks& marks);
// The own request that the log has not answered for the longest time.
std::optional<StalledTally> OldestOwn(const Marks& marks);
StallState StateOf(NameView key, const Marks& marks, const SetTable& sets, const Place& place);

}  // namespace hvd::negotiation
