// The kernels for every other machine: 16-byte vectors that the compiler maps to what the baseline of the architecture
// has (SSE2 on x86-64), or to single values where it has nothing. No instruction beyond that baseline.
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "collective/kernels/table.h"

#define HVD_VECTOR_BYTES 16
#include "collective/kernels/adasum.h"
#include "collective/kernels/reduce.h"

namespace hvd::collective::kernels {
namespace {

struct Scalar : Portable {
#if defined(__x86_64__)
  static HVD_INLINE void StoreStreaming(char* to, Raw value) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)value);
  }
  static HVD_INLINE void Fence() { _mm_sfence(); }
#endif
};

}  // namespace

const KernelTable kScalarKernels = {"scalar", ReduceWith<Scalar>, Stream<Scalar>, DotsWith<Scalar>,
                                    CombineWith<Scalar>};

}  // namespace hvd::collective::kernels
