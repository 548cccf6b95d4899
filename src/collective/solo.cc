#include "collective/solo.h"

#include "collective/kernels/kernels.h"

namespace hvd::collective {
namespace {

void ReduceOne(const Batch& batch, const Tensor& t, void* out) {
  const void* src = t.input;
  const ReduceOp op = batch.op == ReduceOp::kAdasum ? ReduceOp::kSum : batch.op;  // Adasum of one vector is the vector
  kernels::Reduce({batch.dtype, op, {batch.prescale, batch.postscale}, &src, 1, &out, 1, t.elems});
}

}  // namespace

Task SoloCollective(const Group&, Batch& batch) {
  for (Tensor& t : batch.tensors) {
    const size_t bytes = t.elems * SizeOf(batch.dtype);
    const int64_t rows = t.shape.empty() ? 1 : t.shape[0];
    switch (batch.type) {
      case OpType::kAllreduce:
        ReduceOne(batch, t, t.output);
        break;
      case OpType::kReducescatter:
        HVD_CO_TRY(t.PlaceResult(bytes));
        ReduceOne(batch, t, t.output);
        break;
      case OpType::kBroadcast:
        if (t.output != t.input) kernels::Copy(t.output, t.input, bytes);
        break;
      case OpType::kAlltoall: {  // rows beyond the splits go nowhere
        const int64_t sent = t.splits.empty() ? rows : t.splits[0];
        const size_t sent_bytes = static_cast<size_t>(sent) * t.row_elems * SizeOf(batch.dtype);
        HVD_CO_TRY(t.PlaceResult(sent_bytes));
        kernels::Copy(t.output, t.input, sent_bytes);
        t.received_rows = {sent};
        break;
      }
      case OpType::kAllgather:
        HVD_CO_TRY(t.PlaceResult(bytes));
        kernels::Copy(t.output, t.input, bytes);
        t.received_rows = {rows};
        break;
      case OpType::kBarrier:
      case OpType::kJoin:
      case OpType::kSend:
      case OpType::kRecv:
        break;
    }
  }
  co_return Status();
}

}  // namespace hvd::collective
