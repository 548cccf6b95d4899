// The two 8-bit floats of the OCP specification (OFP8) to and from float32, one value at a time, for code that is not
// on a hot path and as the reference the vector kernels are tested against:
//   - float8_e4m3fn: 4 bits of exponent, 3 of mantissa, up to 448; no infinity, and one NaN of either sign;
//   - float8_e5m2: 5 bits of exponent, 2 of mantissa, up to 57344; the upper byte of a float16, with its infinities.
// To 8 bits: round to nearest even; what is then too large becomes infinity, and NaN where there is none, so that no
// overflow is hidden; a NaN becomes the one with all bits set. ml_dtypes does the same, but for the bits of the NaN of
// float8_e5m2; PyTorch too, which since 2.12 makes 448 of what is too large for float8_e4m3fn.
#pragma once

#include <bit>
#include <cstdint>

namespace hvd {

// kMantissa bits of mantissa, kBias of the exponent; kFirst is the first code that is not a finite number.
template <uint32_t kMantissa, uint32_t kBias, uint32_t kFirst>
struct Float8 {
  static constexpr uint32_t kSpecial = kFirst, kNan = 0x7f;
  static constexpr uint32_t kShift = 23 - kMantissa;                     // from its mantissa to that of a float32
  static constexpr uint32_t kRebias = (127 - kBias) << 23;               // from its exponent to that of a float32
  static constexpr uint32_t kNormal = kRebias + (1u << 23);              // the smallest normal number as a float32
  static constexpr uint32_t kAligned = kNormal + (kShift << 23);         // its last bit weighs as much as a denormal's
  static constexpr uint32_t kTooLarge = (kSpecial << kShift) + kRebias;  // what kSpecial would be if it were finite
  static constexpr uint32_t kSpecialAt = kSpecial << kShift, kInfinite = 0x7f800000;

  static float ToFloat(uint8_t code) {
    const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24, at = (code & 0x7fu) << kShift;
    if (at >= kSpecialAt) return std::bit_cast<float>(sign | kInfinite | at);
    if (at >= 1u << 23) return std::bit_cast<float>(sign | (at + kRebias));
    // Zero or denormal: the smallest normal number + it is a normal float, and the subtraction is exact.
    const float shifted = std::bit_cast<float>(at + kNormal) - std::bit_cast<float>(kNormal);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(shifted));
  }

  static uint8_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
    return static_cast<uint8_t>((bits >> 24 & 0x80u) | Rounded(magnitude));
  }

 private:
  static uint32_t Rounded(uint32_t magnitude) {
    if (magnitude > kInfinite) return kNan;
    if (magnitude >= kTooLarge) return kSpecial;
    if (magnitude < kNormal) {
      // The result is denormal. The addition aligns its last bit with the last bit of the float, and rounds.
      const float aligned = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAligned);
      return std::bit_cast<uint32_t>(aligned) - kAligned;
    }
    const uint32_t odd = (magnitude >> kShift) & 1u;
    return (magnitude - kRebias + ((1u << (kShift - 1)) - 1) + odd) >> kShift;  // may carry into kSpecial, rightly
  }
};

using Float8E4m3 = Float8<3, 7, 0x7f>;
using Float8E5m2 = Float8<2, 15, 0x7c>;

}  // namespace hvd
