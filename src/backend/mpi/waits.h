// What an operation of MPI waits for. A caller that stops waiting before the end, as when a member has died, puts MPI
// out of use: nobody can take an operation back that others have begun.
#pragma once

#include <vector>

#include "backend/mpi/job.h"
#include "base/task.h"

namespace hvd::backend::mpi {

// Until the operation that was just begun is over: job.workspace().request. begun: what the library said to it; bytes:
// about as many are moved here.
Task Finished(Job& job, Status begun, size_t bytes);

// The communicator of these ranks of the job, *comm. The first time it is made, by a thread that ends with it: MPI
// blocks for that until all of them have come, and who drives has others to listen to.
Task CommunicatorOf(Job& job, const std::vector<int>& ranks, Handle* comm);

}  // namespace hvd::backend::mpi
