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
Status GatherOne(const Call& call, const Tensor& t) {
  const Library& nccl = call.library();
  const size_t row = RowBytes(call, t);
  if (AllEqual(t.received_rows)) {
    const size_t bytes = static_cast<size_t>(t.received_rows[0]) * row;
    return bytes == 0 ? Status() : nccl.Allgather(t.input, t.output, bytes, call.comm(), call.on());
  }
  std::byte* to = t.output;
  for (int m = 0; m < call.n(); ++m) {
    const size_t bytes = static_cast<size_t>(t.received_rows[m]) * row;
    if (bytes == 0) continue;
    const std::byte* const from = m == call.member.index() ? t.input : to;
    HVD_TRY(nccl.Broadcast(from, to, bytes, m, call.comm(), call.on()));
    to += bytes;
  }
  return Status();
}

Status ExchangeOne(const Call& call, const Tensor& t) {
  const Library& nccl = call.library();
  const size_t row = RowBytes(call, t);
  const std::byte* from = t.input;
  std::byte* to = t.output;
  for (int m = 0; m < call.n(); ++m) {
    const size_t sent = static_cast<size_t>(t.splits[m]) * row,
                 received = static_cast<size_t>(t.received_rows[m]) * row;
    if (sent > 0) HVD_TRY(nccl.Send(from, sent, m, call.comm(), call.on()));
    if (received > 0) HVD_TRY(nccl.Receive(to, received, m, call.comm(), call.on()));
    from += sent;
    to += received;
  }
  return Status();
}

template <class One>
Status ForEachTensor(const Call& call, const char* phase, One one) {
  call.Phase(phase);
  return Grouped(call, [&]() -> Status {
    for (const Tensor& t : call.batch.tensors) HVD_TRY(one(call, t));
    return Status();
  });
}

Status BroadcastOne(const Call& call, const Tensor& t) {
  if (t.elems == 0) return Status();
  return call.library().Broadcast(t.input, t.output, call.BytesOf(t), call.batch.root, call.comm(), call.on());
}

}  // namespace

Task Broadcast(const Call& call) {
  HVD_CO_TRY(ForEachTensor(call, "NCCL_BCAST", BroadcastOne));
  co_return co_await call.member.Settled("ncclBroadcast");
}

Task Allgather(const Call& call) {
  HVD_CO_TRY(ForEachTensor(call, "NCCL_ALLGATHER", GatherOne));
  co_return co_await call.member.Settled("ncclAllGather");
}

Task Alltoall(const Call& call) {
  HVD_CO_TRY(ForEachTensor(call, "NCCL_ALLTOALL", ExchangeOne));
  co_return co_await call.member.Settled("ncclSend");
}

}  // namespace hvd::backend::nccl
