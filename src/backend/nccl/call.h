// Call: one batch on its way to NCCL: the communicator, the queue, and what stands beside them.
#pragma once

#include <utility>
#include <vector>

#include "backend/cuda/driver/context.h"
#include "backend/cuda/packing/packing.h"
#include "backend/nccl/queues.h"
#include "collective/batch.h"

namespace hvd::backend::nccl {

struct Call {
  const collective::Group& group;
  collective::Batch& batch;
  Member& member;
  const cuda::Context& context;
  cuda::Packing& packing;
  Queue& queue;

  Stream on() const { return queue.stream->handle(); }
  int n() const { return group.size(); }
  size_t elem_bytes() const { return SizeOf(batch.dtype); }
  size_t BytesOf(const collective::Tensor& t) const { return t.elems * elem_bytes(); }
  // As Member::Put, on this stream. Other members may come late because their devices are busy.
  Task Put(std::vector<Operation> operations, const char* function) const {
    batch.awaits_device = true;
    const Status put = co_await member.Put(std::move(operations), on(), function);
    batch.awaits_device = false;
    co_return put;
  }
  // What is put on the stream from now on, for a trace.
  void Phase(const char* name) const {
    if (batch.phases != nullptr) batch.phases->Begin(name, on());
  }
};

// What the tasks below put on the stream for a batch, at most.
size_t CommandsOf(const collective::Group& group, const collective::Batch& batch);

// ---- each puts the work of a batch on the stream, and ends when it is there.
Task Allreduce(const Call& call);
Task Reducescatter(const Call& call);
Task Broadcast(const Call& call);
// The rows of the others are known (Tensor::received_rows), and there is memory for the results.
Task Allgather(const Call& call);
Task Alltoall(const Call& call);

}  // namespace hvd::backend::nccl
