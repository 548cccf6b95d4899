// Two-level collectives: for groups on several hosts of which at least one has several members that share memory. The
// members of a host work for one another through shared memory, and few of them, the owners (roles.h), talk to their
// counterparts on the other hosts. Chosen by the host backend.
//
// Every one of them: group.channels must connect the members of different hosts, group.local the members of this one.
// All members run the same function with the same batch.seq; results have equal bits on all members. What crosses the
// hosts' boundaries are plans of channels/schedule.h over the counterparts, and never more bytes than must; no
// algorithm has a wait that could close a circle (between.h). Costs at each function: h hosts, l members on this one, k
// owners (at most the size of the smallest host), B bytes.
#pragma once

#include "base/task.h"
#include "collective/batch.h"

namespace hvd::collective::hosts {

// Several hosts, one of them with several members. The same answer on all members, also on one that is alone on its
// host: it must take part.
bool Applies(const Group& group);

// Sum, Min, Max, Product.
Task Allreduce(const Group& group, Batch& batch);
// The same operations; block of rows as in channels::Reducescatter. Only sums of whole hosts travel.
Task Reducescatter(const Group& group, Batch& batch);
// Rows may differ by member. Sets result and received_rows.
Task Allgather(const Group& group, Batch& batch);
// Whether two levels are faster than a tree over all members, the same on all of them.
bool BroadcastPays(const Group& group, const Batch& batch);
// From member batch.root.
Task Broadcast(const Group& group, Batch& batch);
// Splits of rows to every member. Sets result and received_rows.
Task Alltoall(const Group& group, Batch& batch);

}  // namespace hvd::collective::hosts
