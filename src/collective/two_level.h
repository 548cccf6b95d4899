// Two-level allreduce: for groups on several hosts of which at least one has several members that share memory. Chosen
// by the host backend. The other collectives need no two-level form: TeamOf() puts the members of a host next to one
// another, so the ring (allgather) and the chain (broadcast) of channels/schedule.h cross each host boundary once
// anyway.
#pragma once

#include "base/task.h"
#include "collective/batch.h"

namespace hvd::collective {

// Several hosts, one of them with several members. The same answer on all members, also on one that is alone on its
// host: it must take part.
bool TwoLevelApplies(const Group& group);

// group.channels must connect the members of different hosts; group.local the members of this one. Sum, Min, Max,
// Product.
Task TwoLevelAllreduce(const Group& group, Batch& batch);

}  // namespace hvd::collective
