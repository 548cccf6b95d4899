// float16 (IEEE 754 binary16) and bfloat16 to and from float32, one value at a time, for code that is not on a hot path
// and as the reference the vector kernels are tested against. To 16 bits: round to nearest even, overflow to infinity,
// a NaN stays a (quiet) NaN. Arrays are converted by collective/kernels/kernels.h, which this file does not know.
#pragma once

#include <bit>
#include <cstdint>

namespace hvd {

inline float FloatFromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = half & 0x7c00u;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  if (exponent == 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | magnitude);  // infinity, NaN
  if (exponent != 0) return std::bit_cast<float>(sign | (magnitude + (112u << 23)));
  // Zero or denormal: 2^-14 + denormal is a normal float, and the subtraction is exact.
  const float shifted = std::bit_cast<float>(magnitude + (113u << 23)) - std::bit_cast<float>(113u << 23);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(shifted));
}

inline uint16_t HalfFromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));  // NaN, made quiet
  if (magnitude >= 143u << 23) return static_cast<uint16_t>(sign | 0x7c00u);      // 2^16 and above
  if (magnitude < 113u << 23) {
    // Below 2^-14 the result is denormal. Adding 0.5 aligns its last bit with the last bit of the float, whose addition
    // rounds.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign |
                               ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));  // may carry into infinity, rightly
}

inline float FloatFromBfloat16(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

inline uint16_t Bfloat16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN, made quiet
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace hvd
