#include "backend/nccl/reducing.h"

#include <iterator>

#include "backend/nccl/scaling.h"

namespace hvd::backend::nccl {
namespace {

constexpr int kNone = -1;
constexpr int kPlainOps[] = {kSum, kSum, kNone, kMin, kMax, kProd};  // by ReduceOp
static_assert(std::size(kPlainOps) == kReduceOpCount);

}  // namespace

std::string WhyNotReduced(const collective::Batch& batch) {
  if (kPlainOps[static_cast<int>(batch.op)] == kNone) return std::string("NCCL has no ") + NameOf(batch.op);
  // Only new ones add 8-bit floats at all, on GPUs of their generation.
  if (IsFloat8(batch.dtype)) return std::string("NCCL would round sums of ") + NameOf(batch.dtype) + " at every link";
  if (!TypeOf(batch.dtype)) return std::string("NCCL cannot add ") + NameOf(batch.dtype);
  const bool scaled = batch.prescale * batch.postscale != 1.0;
  if (scaled && (!IsFloat(batch.dtype) || batch.op != ReduceOp::kSum)) return "NCCL multiplies sums of floats only";
  // Ours say what becomes of a NaN.
  if (RowOf(batch.op).orders && IsFloat(batch.dtype)) return "NCCL does not say what Min and Max are of a NaN";
  return "";
}

Result<Summing> SummingOf(const Call& call) {
  const double factor = call.batch.prescale * call.batch.postscale;
  Summing how{kPlainOps[static_cast<int>(call.batch.op)], 1.0f};
  switch (HowToScale(call.batch.dtype, factor)) {
    case Scaling::kNone:
      break;
    case Scaling::kByOurKernel:
      how.factor = static_cast<float>(factor);
      break;
    case Scaling::kByNccl: {
      const Result<int> op = call.member.ScaledSum(call.batch.dtype, factor);
      HVD_TRY(op.status());
      how.op = *op;
      break;
    }
  }
  return how;
}

Result<Summing> SummingOfPacked(const Call& call) {
  const double factor = call.batch.prescale * call.batch.postscale;
  if (factor == 1.0 || !cuda::Packing::CanScale(call.batch.dtype)) return SummingOf(call);
  return Summing{kSum, static_cast<float>(factor)};
}

Status Pack(const Call& call, const std::vector<Packed>& packed, float factor, std::byte* buffer) {
  std::vector<cuda::Move> moves;
  moves.reserve(packed.size());
  for (const Packed& p : packed) moves.push_back({p.tensor->input, buffer + p.at, call.BytesOf(*p.tensor)});
  return call.packing.Launch(moves, call.batch.dtype, factor, call.on());
}

Status Unpack(const Call& call, const std::vector<Packed>& packed, const std::byte* buffer) {
  std::vector<cuda::Move> moves;
  moves.reserve(packed.size());
  for (const Packed& p : packed) moves.push_back({buffer + p.at, p.tensor->output, call.BytesOf(*p.tensor)});
  return call.packing.Launch(moves, call.batch.dtype, 1.0, call.on());
}

}  // namespace hvd::backend::nccl
