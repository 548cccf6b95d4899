// The 8-bit floats of base/float8.h as the vector kernels see them; included like vector.h, whose rules hold here.
#pragma once

#include "base/float8.h"
#include "collective/kernels/vector.h"

namespace hvd::collective::kernels {
namespace {

// Four vectors of float32 made of one of 8-bit floats: the values of the bytes 0, 1, 2 and 3 of each 32-bit word, so
// that no lane is crossed.
struct Quad {
  Pair low, high;
};

template <class Op>
HVD_INLINE Quad Apply(Quad a, Quad b) {
  return {Apply<Op>(a.low, b.low), Apply<Op>(a.high, b.high)};
}
HVD_INLINE Quad Times(Quad a, Floats factor) { return {Times(a.low, factor), Times(a.high, factor)}; }

template <class Format>  // Float8E4m3 or Float8E5m2
struct Eighth {
  using Factor = float;
  using Wide = Quad;

  static HVD_INLINE Wide Widen(Raw raw) {
    const Words words = (Words)raw;
    return {{Float(words << 24), Float(words << 16)}, {Float(words << 8), Float(words)}};
  }
  static HVD_INLINE Raw Narrow(Wide value) {
    const Words low = Code(value.low.first) >> 24 | Code(value.low.second) >> 16;
    return (Raw)(low | Code(value.high.first) >> 8 | Code(value.high.second));
  }

 private:
  // base/float8.h, with selects instead of branches. A code is the highest byte of a word.
  static HVD_INLINE Floats Float(Words code) {
    const Words at = (code >> (24 - Format::kShift)) & (0x7fu << Format::kShift);
    const Words denormal = (Words)((Floats)(at + Format::kNormal) - (Floats)(Words{} + Format::kNormal));
    const Words finite = (at < (1u << 23)) ? denormal : (at + Format::kRebias);
    const Words magnitude = (at >= Format::kSpecialAt) ? (at | Format::kInfinite) : finite;
    return (Floats)(magnitude | (code & 0x80000000u));
  }
  static HVD_INLINE Words Code(Floats value) {
    constexpr uint32_t kBelowHalf = (1u << (Format::kShift - 1)) - 1;
    const Words bits = (Words)value;
    const Words magnitude = bits & 0x7fffffffu;
    const Words aligned = (Words)((Floats)magnitude + (Floats)(Words{} + Format::kAligned)) - Format::kAligned;
    const Words odd = (magnitude >> Format::kShift) & 1u;
    const Words normal = (magnitude - Format::kRebias + kBelowHalf + odd) >> Format::kShift;
    const Words finite = (magnitude < Format::kNormal) ? aligned : normal;
    const Words special = (magnitude > Format::kInfinite) ? (Words{} + Format::kNan) : (Words{} + Format::kSpecial);
    return (((magnitude >= Format::kTooLarge) ? special : finite) << 24) | (bits & 0x80000000u);
  }
};

}  // namespace
}  // namespace hvd::collective::kernels
