// The vocabulary of the vector kernels: vectors of HVD_VECTOR_BYTES bytes (defined by the including variant), the
// dtypes as seen by them, and the four operations. Written with the compiler's vector extension, so that one source
// serves every instruction set. Included only by <variant>.cc, after that file's target pragma: everything is
// in an unnamed namespace and calls nothing of the standard library, because an inline function of a shared section
// must never be emitted with instructions that another machine lacks.
#pragma once

#include <cstddef>
#include <cstdint>

#define HVD_INLINE inline __attribute__((always_inline))

namespace hvd::collective::kernels {
namespace {

constexpr size_t kWidth = HVD_VECTOR_BYTES;
constexpr size_t kLine = 64;  // a cache line: streaming stores should fill whole ones

template <class T, size_t kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
  typedef T Unaligned __attribute__((vector_size(kBytes), aligned(1), may_alias));
};
template <class T>
using Vec = typename VectorOf<T, kWidth>::Type;
template <class T>
using HalfVec = typename VectorOf<T, kWidth / 2>::Type;
using Raw = Vec<uint8_t>;
using Floats = Vec<float>;
using Doubles = Vec<double>;
using Words = Vec<uint32_t>;

template <class T>
HVD_INLINE Vec<T> LoadVec(const char* from) {
  return *reinterpret_cast<const typename VectorOf<T, kWidth>::Unaligned*>(from);
}
template <class T>
HVD_INLINE HalfVec<T> LoadHalfVec(const char* from) {
  return *reinterpret_cast<const typename VectorOf<T, kWidth / 2>::Unaligned*>(from);
}
template <class T>
HVD_INLINE void StoreVec(char* to, Vec<T> value) {
  *reinterpret_cast<typename VectorOf<T, kWidth>::Unaligned*>(to) = value;
}
template <class T>
HVD_INLINE void StoreHalfVec(char* to, HalfVec<T> value) {
  *reinterpret_cast<typename VectorOf<T, kWidth / 2>::Unaligned*>(to) = value;
}

template <class T>
HVD_INLINE Vec<T> Splat(T value) {
  return value - Vec<T>{};  // subtracting +0 keeps -0 and NaN
}

// A product that the compiler may not fuse with an addition that follows: a fused one rounds differently, and only some
// machines have it.
template <class V>
HVD_INLINE V RoundedProduct(V a, V b) {
  V product = a * b;
#if defined(__x86_64__)
  __asm__("" : "+v"(product));
#elif defined(__aarch64__)
  __asm__("" : "+w"(product));
#else
  __asm__("" : "+m"(product));
#endif
  return product;
}

// What a variant may replace by instructions of its own; these versions need none.
struct Portable {
  static HVD_INLINE Raw LoadPart(const char* from, size_t bytes) {  // bytes < kWidth; the rest is zero
    Raw value = {};
    __builtin_memcpy(&value, from, bytes);
    return value;
  }
  static HVD_INLINE void StorePart(char* to, Raw value, size_t bytes) { __builtin_memcpy(to, &value, bytes); }
  static HVD_INLINE void StoreStreaming(char* to, Raw value) { StoreVec<uint8_t>(to, value); }  // `to` is aligned
  static HVD_INLINE void Fence() {}

  // The first half of the float16 values into `first`, the second half into `second`. Long, and seldom used: not
  // inlined.
  static __attribute__((noinline)) void WidenHalf(Raw raw, Floats& first, Floats& second) {
    char memory[kWidth];
    StoreVec<uint8_t>(memory, raw);
    first = FromHalf(__builtin_convertvector(LoadHalfVec<uint16_t>(memory), Words));
    second = FromHalf(__builtin_convertvector(LoadHalfVec<uint16_t>(memory + kWidth / 2), Words));
  }
  static __attribute__((noinline)) Raw NarrowHalf(Floats first, Floats second) {
    char memory[kWidth];
    StoreHalfVec<uint16_t>(memory, __builtin_convertvector(ToHalf(first), HalfVec<uint16_t>));
    StoreHalfVec<uint16_t>(memory + kWidth / 2, __builtin_convertvector(ToHalf(second), HalfVec<uint16_t>));
    return LoadVec<uint8_t>(memory);
  }

 private:
  // base/half.h, with selects instead of branches.
  static HVD_INLINE Floats FromHalf(Words half) {
    const Words magnitude = (half & 0x7fffu) << 13;
    const Words normal = magnitude + (112u << 23);
    const Words denormal = (Words)((Floats)(magnitude + (113u << 23)) - (Floats)(Words{} + (113u << 23)));
    const Words finite = (magnitude < (1u << 23)) ? denormal : normal;
    const Words bits = (magnitude >= (31u << 23)) ? (magnitude | 0x7f800000u) : finite;
    return (Floats)(bits | (half & 0x8000u) << 16);
  }
  static HVD_INLINE Words ToHalf(Floats value) {
    const Words bits = (Words)value;
    const Words magnitude = bits & 0x7fffffffu;
    const Words denormal = (Words)((Floats)magnitude + 0.5f) - 0x3f000000u;
    const Words normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const Words nan = ((magnitude >> 13) & 0x3ffu) | 0x7e00u;
    const Words finite = (magnitude < (113u << 23)) ? denormal : normal;
    const Words special = (magnitude > 0x7f800000u) ? nan : (Words{} + 0x7c00u);
    return ((magnitude >= (143u << 23)) ? special : finite) | (bits >> 16 & 0x8000u);
  }
};

// Two vectors of float32 made of one of 16-bit floats.
struct Pair {
  Floats first, second;
};

struct SumOp {
  template <class V>
  static HVD_INLINE V Do(V a, V b) {
    return a + b;
  }
};
struct ProductOp {
  template <class V>
  static HVD_INLINE V Do(V a, V b) {
    return a * b;
  }
};
// With a NaN on either side the comparison is false, which yields b; a NaN in a is put back.
struct MinOp {
  template <class V>
  static HVD_INLINE V Do(V a, V b) {
    const V smaller = a < b ? a : b;
    return a != a ? a : smaller;  // NOLINT(misc-redundant-expression): a NaN
  }
};
struct MaxOp {
  template <class V>
  static HVD_INLINE V Do(V a, V b) {
    const V larger = a > b ? a : b;
    return a != a ? a : larger;  // NOLINT(misc-redundant-expression): a NaN
  }
};

template <class Op, class V>
HVD_INLINE V Apply(V a, V b) {
  return Op::Do(a, b);
}
template <class Op>
HVD_INLINE Pair Apply(Pair a, Pair b) {
  return {Op::Do(a.first, b.first), Op::Do(a.second, b.second)};
}
template <class V>
HVD_INLINE V Times(V a, V factor) {
  return RoundedProduct(a, factor);
}
HVD_INLINE Pair Times(Pair a, Floats factor) {
  return {RoundedProduct(a.first, factor), RoundedProduct(a.second, factor)};
}

// A dtype: how a vector of its memory becomes the value that is combined, and back. Factor is the element type of the
// factors.
template <class T>
struct Plain {
  using Factor = T;
  using Wide = Vec<T>;
  static HVD_INLINE Wide Widen(Raw raw) { return (Wide)raw; }
  static HVD_INLINE Raw Narrow(Wide value) { return (Raw)value; }
};

struct Bool {
  using Factor = uint8_t;
  using Wide = Raw;
  static HVD_INLINE Wide Widen(Raw raw) { return raw; }
  static HVD_INLINE Raw Narrow(Wide value) { return value != 0 ? Raw{} + 1 : Raw{}; }
};

template <class Machine>
struct Half {
  using Factor = float;
  using Wide = Pair;
  static HVD_INLINE Wide Widen(Raw raw) {
    Pair wide;
    Machine::WidenHalf(raw, wide.first, wide.second);
    return wide;
  }
  static HVD_INLINE Raw Narrow(Wide value) { return Machine::NarrowHalf(value.first, value.second); }
};

// The values with an even index go to `first`, the odd ones to `second`: two values share a 32-bit word, and no lane is
// crossed.
struct Bfloat16 {
  using Factor = float;
  using Wide = Pair;
  static HVD_INLINE Wide Widen(Raw raw) { return {(Floats)((Words)raw << 16), (Floats)((Words)raw & 0xffff0000u)}; }
  static HVD_INLINE Raw Narrow(Wide value) {
    return (Raw)((Rounded(value.first) >> 16) | (Rounded(value.second) & 0xffff0000u));
  }

 private:
  // Rounds the upper half of each word. No case for NaN is needed: one that a machine makes, or passes on from a
  // bfloat16, has an empty lower half and cannot carry into the exponent. Factors are the only other origin: see
  // WithoutPayload.
  static HVD_INLINE Words Rounded(Floats value) {
    const Words bits = (Words)value;
    return bits + 0x7fffu + ((bits >> 16) & 1u);
  }
};

// A factor that is not a number becomes the plain NaN.
inline double WithoutPayload(double factor) { return factor != factor ? __builtin_nan("") : factor; }

}  // namespace
}  // namespace hvd::collective::kernels
