// The collectives over channels: for groups whose members are on different hosts, or share a host but no memory. Works
// over any Channel (tcp, shared-memory ring, memory). group.channels must hold one for every other member. Chosen and
// run by the host backend.
//
// Every one of them: never blocks, yields between turns of about 100 us, stages at most two segments (group.scratch),
// sends and receives large tensors in the users' own memory, and fails with kPeerLost naming the rank when a channel
// breaks. All members run the same function with the same batch.seq; results have equal bits on all members.
#pragma once

#include <span>

#include "base/task.h"
#include "collective/batch.h"

namespace hvd::collective::channels {

// Recursive doubling, Rabenseifner or ring, by size and number of members (schedule.h). output = post * combination of
// pre * inputs.
Task Allreduce(const Group& group, Batch& batch);
// Sizes (Bruck), then the rows of all tensors together (Bruck or ring). Rows may differ by member. Sets result and
// received_rows.
Task Allgather(const Group& group, Batch& batch);
// Binomial tree or pipelined chain from member batch.root.
Task Broadcast(const Group& group, Batch& batch);
// Sizes, then rows, both by pairwise exchange. splits[m] rows go to member m. Sets result and received_rows.
Task Alltoall(const Group& group, Batch& batch);
// Pairwise exchange. Member m gets rows PartOf(rows, n, m) of the combination, in result.
Task Reducescatter(const Group& group, Batch& batch);
// Dissemination.
Task Barrier(const Group& group, Batch& batch);

// The tensor of member batch.root's goes to member batch.receiver's output. These two run it, and no other member.
Task SendOrRecv(const Group& group, Batch& batch);

// all[m * mine.size()] = mine of member m. Equal small sizes; `batch` lends its number (once per batch). Bruck.
Task Exchange(const Group& group, Batch& batch, std::span<const std::byte> mine, std::span<std::byte> all);

}  // namespace hvd::collective::channels
