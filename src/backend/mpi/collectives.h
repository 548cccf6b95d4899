// The collectives by MPI. A batch goes through memory of ours (job.h) in pieces, so that every count fits an int and
// memory is bounded; scale and rounding are our kernels', before and after.
//
// MPI reduces where it has type and operation and means the same by them (Handles::Reduction). Else, and for
// deterministic results, it moves bytes and our kernels reduce, in the order of the ranks: then all ranks hold equal
// bits whatever the library does.
//
// Costs: n members, B bytes of batch; "moved" is what a rank sends.
//   allreduce      Iallreduce. Else, to 256 KB in all, one Iallgather: (n - 1) B moved. Else per piece Ialltoallv, each
//                  reduces its block, Iallgatherv: 2 B (n - 1) / n moved (Rabenseifner 2004).
//   reducescatter  Ialltoallv, each reduces its block: B (n - 1) / n moved.
//   allgather      an Iallgather of the numbers of rows, then Iallgatherv per piece.
//   alltoall       an Ialltoall of the numbers of rows, an Iallgather of how many pieces each needs, Ialltoallv per
//   piece. broadcast      Ibcast per piece.
#pragma once

#include "backend/mpi/job.h"
#include "base/task.h"
#include "collective/batch.h"

namespace hvd::backend::mpi {

// Any operation but Adasum and join, of more than one member. Job, group and batch outlive the task.
Task Collective(Job& job, const collective::Group& group, collective::Batch& batch);

}  // namespace hvd::backend::mpi
