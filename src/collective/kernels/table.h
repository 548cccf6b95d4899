// The seam between the dispatch (kernels.cc) and the variants (<variant>.cc): one table of functions per
// instruction set. A variant that the compiler's target cannot have is not defined. Which table this machine may use is
// decided in kernels.cc alone.
#pragma once

#include <cstddef>

#include "collective/kernels/kernels.h"

namespace hvd::collective::kernels {

struct CombineArgs {
  DType dtype;
  double a_coefficient;
  double b_coefficient;
  const void* a;
  const void* b;
  void* out;
  size_t elems;
};

struct KernelTable {
  const char* name;
  // As Reduce, but factors of integers and bool are ignored and elems > 0.
  void (*reduce)(const ReduceArgs& args);
  // As Copy with kStreaming, for any two distinct addresses.
  void (*stream)(void* dst, const void* src, size_t bytes);
  AdasumDots (*dots)(DType dtype, const void* a, const void* b, size_t elems);
  // out = a_coefficient * a + b_coefficient * b, in double.
  void (*combine)(const CombineArgs& args);
};

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#elif defined(__aarch64__)
extern const KernelTable kNeonKernels;
#endif

// The table in use from now on; answers the one before. Not thread-safe; for tests that watch the kernels.
const KernelTable* UseKernels(const KernelTable* table);

// Reduce for an integer dtype with a factor other than 1.0, on top of `table`.
void ReduceScaledIntegers(const KernelTable& table, const ReduceArgs& args);

}  // namespace hvd::collective::kernels
