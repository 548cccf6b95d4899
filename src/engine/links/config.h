// What a configuration means to the parts of the engine.
#pragma once

#include <vector>

#include "horovod/horovod.h"
#include "negotiation/node.h"

namespace hvd::engine {

// kInvalidArgument: of another version of this library, or impossible.
Status CheckConfig(const hvd_config& c);
// Leaders of hosts that exchange small operations directly; empty: they do not. Where only neighbours in the tree are
// connected at the start, that is two, one of which is the other's parent.
std::vector<int> DirectLeadersOf(const hvd_config& c);
negotiation::NodeConfig NodeConfigFrom(const hvd_config& c);
// Those that may be changed later.
negotiation::Parameters ParametersFrom(const hvd_config& c);
// How many cores each rank of this host can have for itself, as far as this one sees: 0 (ranks share cores), 1, or 2
// for two and more. Judged by what all ranks may use: a rank that its launcher bound to one core has that one for
// itself.
int CoresPerRank(const hvd_config& c);

}  // namespace hvd::engine
