// How a sum gets its factor: NCCL multiplies by an element of the tensors' own type while it reads them. That is exact
// enough for 32 and 64 bits; a third in bfloat16 is off by 0.2 %, the same way for every element, so there our kernel
// multiplies in float32 and rounds once. Both multiply first: sums of float16 do not overflow on their way. Pure.
#pragma once

#include "base/dtype.h"
#include "base/half.h"

namespace hvd::backend::nccl {

enum class Scaling {
  kNone,
  kByNccl,      // PreMulSum
  kByOurKernel  // before
};

inline bool Holds(DType dtype, double factor) {
  const float f = static_cast<float>(factor);
  if (static_cast<double>(f) != factor) return false;
  return dtype == DType::kFloat16 ? FloatFromHalf(HalfFromFloat(f)) == f : FloatFromBfloat16(Bfloat16FromFloat(f)) == f;
}

inline Scaling HowToScale(DType dtype, double factor) {
  if (factor == 1.0) return Scaling::kNone;
  if (SizeOf(dtype) > 2 || Holds(dtype, factor)) return Scaling::kByNccl;
  return Scaling::kByOurKernel;
}

}  // namespace hvd::backend::nccl
