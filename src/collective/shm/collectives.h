// The collectives over shared memory: all members of the group are on this host (group.local covers them all, in member
// order). Used by the host backend and, inside a host, by the hierarchical algorithms. Nothing here negotiates, spins
// or owns a tensor.
//
// Common rules. A batch runs on every member with the same seq, which rises; a member that is in two groups runs their
// batches in seq order. Data goes through the members' own buffers (arena.h) and is announced by progress steps
// (local_view.h); steps are numbered identically on all members. Every element is combined from the members' raw data
// in member order by exactly one member (or by all of them, from the same bytes), so all ranks hold equal bits. A task
// that fails leaves the outputs undefined; the engine then abandons the batch. A task that succeeds has seen every step
// it depends on published by a member that had not given up.
//
// Costs below: n members, B bytes of batch, C bytes per chunk; "moved" is what a rank loads and stores itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/task.h"
#include "collective/batch.h"

namespace hvd::collective::shm {

// Sum, Min, Max or Product of fused tensors; output may be the input. By size and residency one of
//   flat      Small batches: every rank copies its input into its small buffer and combines all of them.
//             1 synchronisation, (n + 2) B moved. Two buffers alternate with the parity of seq; one is used again only
//             after its readers have finished (LocalView::Acquire).
//   streamed  2 synchronisations per chunk, overlapped with the copies of the next and the last one; about 4 B moved,
//             whatever n is (reduce-scatter and all-gather through shared memory; Patarasuk & Yuan 2009 for the volume,
//             Jain et al. 2018 for the pipeline). Memory: two stages per rank.
//   resident  Tensors that lie in the resident heap of every member: each rank reduces its share of all members'
//             tensors and stores it into all of them. 2 synchronisations, 2 B moved, no buffer. Chosen per tensor; the
//             others of the batch are streamed.
Task Allreduce(const Group& group, Batch& batch);

// Rows of all members one after the other; the number of rows may differ. Fills in result and received_rows. The
// numbers of rows travel with the data: all of it where a rank's part fits its small buffer, else the first piece of
// 256 KB (1 synchronisation), and 1 synchronisation for each further piece. (n + 1) B moved. Or directly, where all
// results lie in memory that the others can store into (direct_results.h): 3 synchronisations, n B moved.
Task Allgather(const Group& group, Batch& batch);

// Root stores pieces into its stages, the others copy them out, up to 1 MB behind: 1 one-sided synchronisation for a
// small batch, else 1 per piece, and from 1 MB on another. Root moves 2 B, the others 2 B.
Task Broadcast(const Group& group, Batch& batch);

// Splits of rows to every member. Fills in result and received_rows. As allgather; each piece has one lane per
// destination, so that all receivers are busy all the time. 4 B moved; directly 2 B.
Task Alltoall(const Group& group, Batch& batch);

// Sum (Min, Max, Product) whose block of rows m stays with member m: floor(rows / n) rows, the first rows % n members
// one more. Fills in result. Small: 1 synchronisation. Else lanes as alltoall: 1 per piece; 3 B moved.
Task Reducescatter(const Group& group, Batch& batch);

// 1 synchronisation.
Task Barrier(const Group& group, Batch& batch);

// all[m * bytes, (m + 1) * bytes) = what member m passed as `mine`; a batch of its own. 1 synchronisation per 64 KB.
Task Exchange(const Group& group, uint64_t seq, const void* mine, size_t bytes, void* all);

// The rows of block m when `rows` rows are dealt to n members: floor(rows / n), the first rows % n members one more.
struct RowBlock {
  size_t first, count;
};
inline RowBlock BlockOfMember(size_t rows, int n, int m) {
  const size_t each = rows / n, more = rows % n, i = static_cast<size_t>(m);
  return {i * each + (i < more ? i : more), each + (i < more ? 1 : 0)};
}

}  // namespace hvd::collective::shm
