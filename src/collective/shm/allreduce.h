// The three ways of an allreduce over shared memory, for allreduce.cc, which chooses; see collectives.h.
#pragma once

#include "collective/flow.h"
#include "collective/shm/steps.h"

namespace hvd::collective::shm {

// What to do with every element.
struct Reduction {
  DType dtype;
  ReduceOp op;
  kernels::Factors factors;
};

// How a batch stores: into shared memory, and into results that are not the inputs.
struct Stores {
  StoreMode shared, results;
};

// Through the stages. The first chunk may have been stored before (StageChunk 0), so that a rank that waits for the
// others has used the time; then step taken() announced it.
struct StreamPlan {
  StreamPlan(size_t total, int n);
  size_t chunk_bytes, share_bytes, chunks;
};
void StageChunk(Steps& steps, const Ranges& ranges, const StreamPlan& plan, size_t c, StoreMode mode);
// flow: of all the ranges, or null; then the first chunk has arrived.
Task StreamReduce(Steps& steps, const Reduction& what, const Ranges& ranges, bool staged, Stores stores, Flow* flow);

// A tensor that lies in the resident heap of every member: all inputs and outputs, by member.
struct ResidentTensor {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  size_t bytes = 0;
};
Task ResidentReduce(Steps& steps, const Reduction& what, const std::vector<ResidentTensor>& tensors, StoreMode mode);

}  // namespace hvd::collective::shm
