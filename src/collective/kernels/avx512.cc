// The kernels for AVX-512 (F, BW, DQ, VL). Compiled for the baseline but for what follows the target pragma; kernels.cc
// decides who may run it.
#if defined(__x86_64__)

#include <immintrin.h>

#include "collective/kernels/table.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored \
    "-Wmaybe-uninitialized"  // the compiler's own header, on its "undefined" vectors (GCC bug 105593)
#endif

#define HVD_VECTOR_BYTES 64
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif
#include "collective/kernels/adasum.h"
#include "collective/kernels/reduce.h"

namespace hvd::collective::kernels {
namespace {

struct Avx512 : Portable {
  static HVD_INLINE __mmask64 FirstBytes(size_t bytes) { return (uint64_t{1} << bytes) - 1; }
  static HVD_INLINE Raw LoadPart(const char* from, size_t bytes) {
    return (Raw)_mm512_maskz_loadu_epi8(FirstBytes(bytes), from);
  }
  static HVD_INLINE void StorePart(char* to, Raw value, size_t bytes) {
    _mm512_mask_storeu_epi8(to, FirstBytes(bytes), (__m512i)value);
  }
  static HVD_INLINE void StoreStreaming(char* to, Raw value) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)value);
  }
  static HVD_INLINE void Fence() { _mm_sfence(); }
  static HVD_INLINE void WidenHalf(Raw raw, Floats& first, Floats& second) {
    first = (Floats)_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)raw));
    second = (Floats)_mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)raw, 1));
  }
  static HVD_INLINE Raw NarrowHalf(Floats first, Floats second) {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m256i low = _mm512_cvtps_ph((__m512)first, kNearestEven);
    const __m256i high = _mm512_cvtps_ph((__m512)second, kNearestEven);
    return (Raw)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
};

}  // namespace

const KernelTable kAvx512Kernels = {"avx512", ReduceWith<Avx512>, Stream<Avx512>, DotsWith<Avx512>,
                                    CombineWith<Avx512>};

}  // namespace hvd::collective::kernels

// GCC keeps the target to the end of the file, where it instantiates the templates.
#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
