// Broadcast, allgather and alltoall by NCCL: bytes of any type.
#include <numeric>

#include "backend/nccl/call.h"

namespace hvd::backend::nccl {
namespace {

using collective::Tensor;

size_t RowBytes(const Call& call, const Tensor& t) { return t.row_elems * call.elem_bytes(); }

bool AllEqual(const std::vector<int64_t>& rows) {
  for (const int64_t r : rows) {
    if (r != rows[0]) return false;
  }
  return true;
}

// Equal parts by one call, others each from its member.
void GatherOne(const Call& call, const Tensor& t, std::vector<Operation>* out) {
  const size_t row = RowBytes(call, t);
  if (AllEqual(t.received_rows)) {
    const size_t bytes = static_cast<size_t>(t.received_rows[0]) * row;
    if (bytes > 0) out->push_back({Operation::kAllgather, t.input, t.output, bytes});
    return;
  }
  std::byte* to = t.output;
  for (int m = 0; m < call.n(); ++m) {
    const size_t bytes = static_cast<size_t>(t.received_rows[m]) * row;
    if (bytes == 0) continue;
    const std::byte* const from = m == call.member.index() ? t.input : to;
    out->push_back({.kind = Operation::kBroadcast, .from = from, .to = to, .count = bytes, .peer = m});
    to += bytes;
  }
}

void ExchangeOne(const Call& call, const Tensor& t, std::vector<Operation>* out) {
  const size_t row = RowBytes(call, t);
  const std::byte* from = t.input;
  std::byte* to = t.output;
  for (int m = 0; m < call.n(); ++m) {
    const size_t sent = static_cast<size_t>(t.splits[m]) * row,
                 received = static_cast<size_t>(t.received_rows[m]) * row;
    if (sent > 0) out->push_back({.kind = Operation::kSend, .from = from, .to = nullptr, .count = sent, .peer = m});
    if (received > 0)
      out->push_back({.kind = Operation::kReceive, .from = nullptr, .to = to, .count = received, .peer = m});
    from += sent;
    to += received;
  }
}

void BroadcastOne(const Call& call, const Tensor& t, std::vector<Operation>* out) {
  if (t.elems == 0) return;
  out->push_back({.kind = Operation::kBroadcast,
                  .from = t.input,
                  .to = t.output,
                  .count = call.BytesOf(t),
                  .peer = call.batch.root});
}

using Add = void (*)(const Call& call, const Tensor& t, std::vector<Operation>* out);

Task ForEachTensor(const Call& call, const char* phase, Add add, const char* function) {
  call.Phase(phase);
  std::vector<Operation> operations;
  for (const Tensor& t : call.batch.tensors) add(call, t, &operations);
  return call.Put(std::move(operations), function);
}

}  // namespace

Task Broadcast(const Call& call) { return ForEachTensor(call, "NCCL_BCAST", BroadcastOne, "ncclBroadcast"); }

Task Allgather(const Call& call) { return ForEachTensor(call, "NCCL_ALLGATHER", GatherOne, "ncclAllGather"); }

Task Alltoall(const Call& call) { return ForEachTensor(call, "NCCL_ALLTOALL", ExchangeOne, "ncclSend"); }

}  // namespace hvd::backend::nccl
