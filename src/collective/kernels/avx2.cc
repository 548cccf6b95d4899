// The kernels for AVX2 with F16C. Compiled for the baseline but for what follows the target pragma; kernels.cc decides
// who may run it.
#if defined(__x86_64__)

#include <immintrin.h>

#include "collective/kernels/table.h"

#define HVD_VECTOR_BYTES 32
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif
#include "collective/kernels/adasum.h"
#include "collective/kernels/reduce.h"

namespace hvd::collective::kernels {
namespace {

alignas(64) constexpr int32_t kFirstWords[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

struct Avx2 : Portable {
  static HVD_INLINE __m256i FirstWords(size_t bytes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kFirstWords + 8 - bytes / 4));
  }
  static HVD_INLINE Raw LoadPart(const char* from, size_t bytes) {
    if (bytes % 4 != 0) return Portable::LoadPart(from, bytes);
    return (Raw)_mm256_maskload_epi32(reinterpret_cast<const int*>(from), FirstWords(bytes));
  }
  static HVD_INLINE void StorePart(char* to, Raw value, size_t bytes) {
    if (bytes % 4 != 0) return Portable::StorePart(to, value, bytes);
    _mm256_maskstore_epi32(reinterpret_cast<int*>(to), FirstWords(bytes), (__m256i)value);
  }
  static HVD_INLINE void StoreStreaming(char* to, Raw value) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)value);
  }
  static HVD_INLINE void Fence() { _mm_sfence(); }
  static HVD_INLINE void WidenHalf(Raw raw, Floats& first, Floats& second) {
    first = (Floats)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)raw));
    second = (Floats)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)raw, 1));
  }
  static HVD_INLINE Raw NarrowHalf(Floats first, Floats second) {
    const __m128i low = _mm256_cvtps_ph((__m256)first, _MM_FROUND_TO_NEAREST_INT);
    const __m128i high = _mm256_cvtps_ph((__m256)second, _MM_FROUND_TO_NEAREST_INT);
    return (Raw)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  }
};

}  // namespace

const KernelTable kAvx2Kernels = {"avx2", ReduceWith<Avx2>, Stream<Avx2>, DotsWith<Avx2>, CombineWith<Avx2>};

}  // namespace hvd::collective::kernels

// GCC keeps the target to the end of the file, where it instantiates the templates.
#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
