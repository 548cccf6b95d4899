// The Adasum arithmetic, generic over the instruction set; included like reduce.h. Everything is accumulated in
// double. The order is fixed, so that every variant computes the same bits: element i goes to lane i mod 16, and the
// lanes are added pairwise at the end. Smaller floats pass through blocks of float32 in the nearest cache (bfloat16
// with its even elements first, 8-bit floats with every fourth, which are as fixed orders).
#pragma once

#include "collective/kernels/float8.h"
#include "collective/kernels/table.h"
#include "collective/kernels/vector.h"

namespace hvd::collective::kernels {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kDoubles = kWidth / sizeof(double);
constexpr size_t kVectors = kLanes / kDoubles;
constexpr size_t kBlockElems =
    1024;  // a multiple of four times the lanes: the runs of a block, up to four, begin at lane 0 too

struct DotLanes {
  double ab[kLanes], aa[kLanes], bb[kLanes];
};

template <class T>
HVD_INLINE Doubles LoadDoubles(const char* from) {
  if constexpr (sizeof(T) == sizeof(double)) {
    return LoadVec<double>(from);
  } else {
    return __builtin_convertvector(LoadHalfVec<float>(from), Doubles);
  }
}
template <class T>
HVD_INLINE void StoreDoubles(char* to, Doubles value) {
  if constexpr (sizeof(T) == sizeof(double)) {
    StoreVec<double>(to, value);
  } else {
    StoreHalfVec<float>(to, __builtin_convertvector(value, HalfVec<float>));
  }
}

// Adds `groups` times 16 elements. The product of two float32 is exact in double; that of two doubles must not be
// fused.
template <class T>
void AddDots(DotLanes& lanes, const char* a, const char* b, size_t groups) {
  Doubles ab[kVectors], aa[kVectors], bb[kVectors];
  __builtin_memcpy(ab, lanes.ab, sizeof(ab));
  __builtin_memcpy(aa, lanes.aa, sizeof(aa));
  __builtin_memcpy(bb, lanes.bb, sizeof(bb));
  for (; groups > 0; --groups, a += kLanes * sizeof(T), b += kLanes * sizeof(T)) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      const Doubles x = LoadDoubles<T>(a + v * kDoubles * sizeof(T));
      const Doubles y = LoadDoubles<T>(b + v * kDoubles * sizeof(T));
      ab[v] += sizeof(T) == sizeof(float) ? x * y : RoundedProduct(x, y);
      aa[v] += sizeof(T) == sizeof(float) ? x * x : RoundedProduct(x, x);
      bb[v] += sizeof(T) == sizeof(float) ? y * y : RoundedProduct(y, y);
    }
  }
  __builtin_memcpy(lanes.ab, ab, sizeof(ab));
  __builtin_memcpy(lanes.aa, aa, sizeof(aa));
  __builtin_memcpy(lanes.bb, bb, sizeof(bb));
}

inline double AddUpLanes(double* lanes) {
  for (size_t n = kLanes / 2; n > 0; n /= 2) {
    for (size_t i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  }
  return lanes[0];
}

template <class T>
void AddDotsOfAll(DotLanes& lanes, const char* a, const char* b, size_t elems) {
  const size_t whole = elems / kLanes * kLanes;
  AddDots<T>(lanes, a, b, elems / kLanes);
  if (whole == elems) return;
  T rest_a[kLanes] = {}, rest_b[kLanes] = {};
  __builtin_memcpy(rest_a, a + whole * sizeof(T), (elems - whole) * sizeof(T));
  __builtin_memcpy(rest_b, b + whole * sizeof(T), (elems - whole) * sizeof(T));
  AddDots<T>(lanes, reinterpret_cast<const char*>(rest_a), reinterpret_cast<const char*>(rest_b), 1);
}

// out = a_coefficient * a + b_coefficient * b for `groups` times kDoubles elements.
template <class T>
void CombineGroups(const CombineArgs& args, const char* a, const char* b, char* out, size_t groups) {
  const Doubles ca = Splat(WithoutPayload(args.a_coefficient)), cb = Splat(WithoutPayload(args.b_coefficient));
  for (size_t g = 0; g < groups; ++g) {
    const size_t at = g * kDoubles * sizeof(T);
    const Doubles x = LoadDoubles<T>(a + at), y = LoadDoubles<T>(b + at);
    StoreDoubles<T>(out + at, RoundedProduct(ca, x) + RoundedProduct(cb, y));
  }
}

template <class T>
void CombineAll(const CombineArgs& args) {
  const char* a = static_cast<const char*>(args.a);
  const char* b = static_cast<const char*>(args.b);
  char* out = static_cast<char*>(args.out);
  CombineGroups<T>(args, a, b, out, args.elems / kDoubles);
  const size_t whole = args.elems / kDoubles * kDoubles;
  if (whole == args.elems) return;
  const size_t at = whole * sizeof(T), bytes = (args.elems - whole) * sizeof(T);
  T rest_a[kDoubles] = {}, rest_b[kDoubles] = {};
  __builtin_memcpy(rest_a, a + at, bytes);
  __builtin_memcpy(rest_b, b + at, bytes);
  CombineGroups<T>(args, reinterpret_cast<const char*>(rest_a), reinterpret_cast<const char*>(rest_b),
                   reinterpret_cast<char*>(rest_a), 1);
  __builtin_memcpy(out + at, rest_a, bytes);
}

// The vectors of a pair or quad, `apart` bytes from one to the next.
HVD_INLINE void StoreApart(char* to, size_t apart, const Pair& pair) {
  StoreVec<float>(to, pair.first);
  StoreVec<float>(to + apart, pair.second);
}
HVD_INLINE void StoreApart(char* to, size_t apart, const Quad& quad) {
  StoreApart(to, apart, quad.low);
  StoreApart(to + 2 * apart, apart, quad.high);
}
HVD_INLINE void LoadApart(const char* from, size_t apart, Pair& pair) {
  pair = {LoadVec<float>(from), LoadVec<float>(from + apart)};
}
HVD_INLINE void LoadApart(const char* from, size_t apart, Quad& quad) {
  LoadApart(from, apart, quad.low);
  LoadApart(from + 2 * apart, apart, quad.high);
}

// A block of floats of 16 or 8 bits as float32, padded with zeros to whole cache lines of those.
template <class Machine, class D>
struct WidenedBlock {
  alignas(kLine) char memory[kBlockElems * sizeof(float)];

  using Wide = typename D::Wide;
  static constexpr size_t kWide = sizeof(Wide) / kWidth;                    // vectors made of one
  static constexpr size_t kBytes = sizeof(float) / kWide;                   // of an element
  static constexpr size_t kRuns = __is_same(D, Half<Machine>) ? 1 : kWide;  // the first of each word, the next, ...
  static constexpr size_t kRun = kBlockElems * sizeof(float) / kRuns;
  static constexpr size_t kApart = kRuns == 1 ? kWidth : kRun;
  static constexpr size_t kStep = kWidth * kWide / kRuns;

  static size_t PaddedBytes(size_t elems) { return (elems * kBytes + kLine - 1) / kLine * kLine; }

  void Widen(const char* from, size_t elems) {
    const size_t bytes = elems * kBytes, padded = PaddedBytes(elems);
    char* to = memory;
    for (size_t at = 0; at < padded; at += kWidth, to += kStep) {
      const size_t left = at < bytes ? bytes - at : 0;
      StoreApart(to, kApart,
                 D::Widen(left >= kWidth ? LoadVec<uint8_t>(from + at) : Machine::LoadPart(from + at, left)));
    }
  }

  void NarrowTo(char* out, size_t elems) const {
    const size_t bytes = elems * kBytes;
    const char* from = memory;
    for (size_t at = 0; at < bytes; at += kWidth, from += kStep) {
      Wide wide;
      LoadApart(from, kApart, wide);
      const Raw raw = D::Narrow(wide);
      if (bytes - at >= kWidth) {
        StoreVec<uint8_t>(out + at, raw);
      } else {
        Machine::StorePart(out + at, raw, bytes - at);
      }
    }
  }

  // What of each run holds values; they begin kRun bytes apart.
  static size_t ElemsPerRun(size_t elems) { return PaddedBytes(elems) / kBytes / kRuns; }
};

template <class Machine, class D>
void AddDotsOfSmall(DotLanes& lanes, const char* a, const char* b, size_t elems) {
  using Block = WidenedBlock<Machine, D>;
  Block wide_a, wide_b;
  for (size_t done = 0; done < elems; done += kBlockElems) {
    const size_t n = elems - done < kBlockElems ? elems - done : kBlockElems;
    wide_a.Widen(a + done * Block::kBytes, n);
    wide_b.Widen(b + done * Block::kBytes, n);
    const size_t groups = Block::ElemsPerRun(n) / kLanes;
    for (size_t run = 0; run < sizeof(wide_a.memory); run += Block::kRun)
      AddDots<float>(lanes, wide_a.memory + run, wide_b.memory + run, groups);
  }
}

template <class Machine, class D>
void CombineSmall(const CombineArgs& args) {
  using Block = WidenedBlock<Machine, D>;
  Block wide_a, wide_b;
  for (size_t done = 0; done < args.elems; done += kBlockElems) {
    const size_t n = args.elems - done < kBlockElems ? args.elems - done : kBlockElems;
    wide_a.Widen(static_cast<const char*>(args.a) + done * Block::kBytes, n);
    wide_b.Widen(static_cast<const char*>(args.b) + done * Block::kBytes, n);
    const size_t groups = Block::ElemsPerRun(n) / kDoubles;
    for (size_t run = 0; run < sizeof(wide_a.memory); run += Block::kRun)
      CombineGroups<float>(args, wide_a.memory + run, wide_b.memory + run, wide_a.memory + run, groups);
    wide_a.NarrowTo(static_cast<char*>(args.out) + done * Block::kBytes, n);
  }
}

template <class Machine>
AdasumDots DotsWith(DType dtype, const void* a, const void* b, size_t elems) {
  DotLanes lanes = {};
  const char* x = static_cast<const char*>(a);
  const char* y = static_cast<const char*>(b);
  switch (dtype) {
    case DType::kFloat16:
      AddDotsOfSmall<Machine, Half<Machine>>(lanes, x, y, elems);
      break;
    case DType::kBfloat16:
      AddDotsOfSmall<Machine, Bfloat16>(lanes, x, y, elems);
      break;
    case DType::kFloat8E4m3fn:
      AddDotsOfSmall<Machine, Eighth<Float8E4m3>>(lanes, x, y, elems);
      break;
    case DType::kFloat8E5m2:
      AddDotsOfSmall<Machine, Eighth<Float8E5m2>>(lanes, x, y, elems);
      break;
    case DType::kFloat64:
      AddDotsOfAll<double>(lanes, x, y, elems);
      break;
    default:
      AddDotsOfAll<float>(lanes, x, y, elems);
  }
  // Aggregate initialisation: a constructor of a shared type must not be emitted for this target.
  return AdasumDots{AddUpLanes(lanes.ab), AddUpLanes(lanes.aa), AddUpLanes(lanes.bb)};
}

template <class Machine>
void CombineWith(const CombineArgs& args) {
  switch (args.dtype) {
    case DType::kFloat16:
      return CombineSmall<Machine, Half<Machine>>(args);
    case DType::kBfloat16:
      return CombineSmall<Machine, Bfloat16>(args);
    case DType::kFloat8E4m3fn:
      return CombineSmall<Machine, Eighth<Float8E4m3>>(args);
    case DType::kFloat8E5m2:
      return CombineSmall<Machine, Eighth<Float8E5m2>>(args);
    case DType::kFloat64:
      return CombineAll<double>(args);
    default:
      return CombineAll<float>(args);
  }
}

}  // namespace
}  // namespace hvd::collective::kernels
