// What a node's marks say about operations that wait. Only reads.
#pragma once

#include <optional>
#include <vector>

#include "negotiation/marks.h"
#include "negotiation/set_table.h"
#include "negotiation/stall/stalled.h"

namespace hvd::negotiation {

std::vector<StalledTally> Incomplete(const Marks& marks);
// The own wish that the log has not answered for the longest time.
std::optional<StalledTally> OldestOwn(const Marks& marks);
StallState StateOf(NameView key, const Marks& marks, const SetTable& sets, const Place& place);

}  // namespace hvd::negotiation
