#include "collective/channels/own.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "collective/kernels/kernels.h"

namespace hvd::collective::channels {
namespace {
constexpr size_t kElemsOfTurn = 64 << 10;
constexpr size_t kTurnBytes = 512 << 10;
}  // namespace

Task CopyOwn(std::byte* dst, const std::byte* src, size_t bytes) {
  if (dst == src) co_return Status();
  for (size_t at = 0; at < bytes; at += kTurnBytes) {
    if (at > 0) co_await Yield();
    kernels::Copy(dst + at, src + at, std::min(kTurnBytes, bytes - at));
  }
  co_return Status();
}

Task FinishCopying(PlanRun& run, const std::vector<OwnCopy>& copies) {
  size_t moved = 0;
  HVD_CO_TRY(run.Advance(&moved));
  for (const OwnCopy& copy : copies) {
    for (size_t at = 0; at < copy.bytes && copy.dst != copy.src; at += kTurnBytes) {
      kernels::Copy(copy.dst + at, copy.src + at, std::min(kTurnBytes, copy.bytes - at));
      HVD_CO_TRY(run.Advance(&moved));
      co_await Yield();
    }
  }
  co_return co_await run.Finish();
}

Task PrescaleOwn(Batch& batch) {
  if (batch.prescale == 1.0) co_return Status();
  const ReduceOp op = batch.op == ReduceOp::kAdasum ? ReduceOp::kSum : batch.op;
  const size_t unit = SizeOf(batch.dtype);
  size_t turn = 0;
  for (const Tensor& t : batch.tensors) {
    for (size_t at = 0; at < t.elems; at += kElemsOfTurn) {
      const size_t n = std::min(kElemsOfTurn, t.elems - at);
      const void* src = t.input + at * unit;
      void* dst = t.output + at * unit;
      kernels::Reduce({batch.dtype, op, {batch.prescale, 1.0}, &src, 1, &dst, 1, n});
      turn += n;
      if (turn >= kElemsOfTurn) {
        turn = 0;
        co_await Yield();
      }
    }
  }
  co_return Status();
}

Status PlaceRows(const Batch& batch, Tensor& t, const std::vector<int64_t>& rows) {
  int64_t total = 0, bytes = 0;
  const int64_t row_bytes = static_cast<int64_t>(t.row_elems * SizeOf(batch.dtype));
  bool possible = true;
  for (const int64_t r : rows) possible = possible && r >= 0 && !__builtin_add_overflow(total, r, &total);
  if (!possible || __builtin_mul_overflow(total, row_bytes, &bytes)) {
    return Status(Code::kInternal, std::string(NameOf(batch.type)) + " of batch " + std::to_string(batch.seq) +
                                       ": the members announced an impossible number of rows; this is a bug.");
  }
  return t.PlaceResult(static_cast<size_t>(bytes));
}

}  // namespace hvd::collective::channels
