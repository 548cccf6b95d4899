// The arithmetic of the collectives over plain memory: reduce, copy, scale, for every dtype and operation, with SIMD
// variants chosen at run time (AVX-512, AVX2, NEON, scalar). Knows nothing of ranks or transports.
//
// Rules all variants keep, so that every rank and every machine of a job computes the same bits:
//   - sources are combined in the order given (callers pass rank order);
//   - floats of 16 and 8 bits are widened to float32, combined over *all* sources, rounded once (to nearest even; what
//     is too large then becomes infinity, and NaN in float8_e4m3fn, see base/float8.h);
//   - integers wrap on overflow (two's complement); a factor other than 1.0 on an integer multiplies in double and
//     truncates toward zero, saturating at the type's limits;
//   - bool: Sum and Max are OR, Product and Min are AND, factors are ignored; any non-zero byte is true, the result is
//     0 or 1;
//   - float32 and the smaller floats multiply by the factor rounded to float32 once; a product is rounded before it is
//     added (never fused);
//   - a NaN in any source gives a NaN, also for Min and Max; its sign and payload may differ between machines.
// No pointer needs alignment. elems may be 0.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace hvd::collective::kernels {

// How results are stored: kStreaming bypasses the cache (followed by a fence before the function returns) and suits
// data that another core, perhaps on another core complex, will read; see docs/design/0003. The fence waits until the
// data is out of the core, so it is for large blocks; below 256 bytes it is the same as kOrdinary. Destinations at the
// same distance from a cache line are stored directly, other mixes by way of a block in the nearest cache.
enum class StoreMode { kOrdinary, kStreaming };

struct Factors {
  double pre = 1.0;   // multiplies each source
  double post = 1.0;  // multiplies the combined value
};

// dsts[k][i] = post * (pre*srcs[0][i] op pre*srcs[1][i] op ...). n_srcs >= 1, n_dsts >= 1. op is Sum, Min, Max or
// Product. Any dst may be identical to any src (same address); partial overlap is not allowed.
struct ReduceArgs {
  DType dtype;
  ReduceOp op;
  Factors factors;
  const void* const* srcs;
  int n_srcs;
  void* const* dsts;
  int n_dsts;
  size_t elems;
  StoreMode store = StoreMode::kOrdinary;
};
void Reduce(const ReduceArgs& args);

// dst[0, bytes) = src[0, bytes); no overlap, or dst == src (nothing to do).
void Copy(void* dst, const void* src, size_t bytes, StoreMode store = StoreMode::kOrdinary);

// data[i] *= factor, by the rules above.
void Scale(DType dtype, void* data, size_t elems, double factor);

// The identity of op: 0 (Sum), +inf or max (Min), -inf or lowest (Max), 1 (Product). bool: Sum/Max false, Min/Product
// true.
void FillIdentity(DType dtype, ReduceOp op, void* dst, size_t elems);

// Adasum (Maleki et al. 2020, "Scaling distributed training with adaptive summation"): floats only.
struct AdasumDots {
  double ab = 0, aa = 0, bb = 0;  // a.b, |a|^2, |b|^2, accumulated in double
};
AdasumDots Dots(DType dtype, const void* a, const void* b, size_t elems);
// out = (1 - ab/(2 aa)) a + (1 - ab/(2 bb)) b; a coefficient is 1 when its squared norm is below sqrt(DBL_MIN). out may
// equal a or b.
void AdasumCombine(DType dtype, const AdasumDots& dots, const void* a, const void* b, void* out, size_t elems);

// "avx512", "avx2", "neon" or "scalar" (no instruction beyond the architecture's baseline): what this machine runs.
// HOROVOD_SIMD is not read here: the choice may be narrowed by SetSimd in tests.
const char* SimdName();
bool SetSimd(const char* name);  // false: not supported by this machine. Not thread-safe; tests and benchmarks only.

}  // namespace hvd::collective::kernels
