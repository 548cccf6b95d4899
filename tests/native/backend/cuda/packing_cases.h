// Tensors to be packed, and what has to come of them, in plain C++.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cuda/packing/packing_kernels.h"
#include "base/dtype.h"
#include "base/half.h"

namespace hvd::test {

using Bytes = std::vector<std::byte>;

// Where a tensor lies in the two buffers.
struct Piece {
  size_t from, to, bytes;
};

inline float ToFloat(DType dtype, uint16_t bits) {
  return dtype == DType::kFloat16 ? FloatFromHalf(bits) : FloatFromBfloat16(bits);
}
inline uint16_t FromFloat(DType dtype, float value) {
  return dtype == DType::kFloat16 ? HalfFromFloat(value) : Bfloat16FromFloat(value);
}

inline void ScaleElement(DType dtype, float factor, std::byte* at) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    value *= factor;
    std::memcpy(at, &value, sizeof value);
    return;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  bits = FromFloat(dtype, ToFloat(dtype, bits) * factor);
  std::memcpy(at, &bits, sizeof bits);
}

// The payload of a NaN is the device's.
inline bool IsNan(DType dtype, const std::byte* at) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return std::isnan(value);
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return std::isnan(ToFloat(dtype, bits));
}

inline void Scale(DType dtype, float factor, std::byte* data, size_t bytes) {
  if (factor == 1) return;
  for (size_t at = 0; at < bytes; at += SizeOf(dtype)) ScaleElement(dtype, factor, data + at);
}

inline bool Same(DType dtype, float factor, const Bytes& a, const Bytes& b, const std::vector<Piece>& pieces) {
  if (a == b) return true;
  if (factor == 1) return false;
  Bytes x = a, y = b;
  for (const Piece& piece : pieces) {
    for (size_t at = piece.to; at < piece.to + piece.bytes; at += SizeOf(dtype)) {
      if (!IsNan(dtype, &x[at]) || !IsNan(dtype, &y[at])) continue;
      std::fill_n(&x[at], SizeOf(dtype), std::byte{0});
      std::fill_n(&y[at], SizeOf(dtype), std::byte{0});
    }
  }
  return x == y;
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  size_t Below(size_t n) { return engine_() % n; }
  // Any bits: infinities, NaNs and denormals are among them.
  Bytes Data(size_t bytes) {
    Bytes data(bytes);
    for (std::byte& b : data) b = static_cast<std::byte>(engine_() >> 7);
    return data;
  }
  // Pieces one behind the other with gaps, at multiples of `align`.
  std::vector<Piece> Pieces(int n, size_t most_bytes, size_t unit, size_t align) {
    std::vector<Piece> pieces;
    size_t from = 0, to = 0;
    const auto next = [&](size_t at) { return (at + align - 1) / align * align + Below(3) * align; };
    for (int k = 0; k < n; ++k) {
      pieces.push_back({next(from), next(to), Below(most_bytes / unit) * unit});
      from = pieces.back().from + pieces.back().bytes;
      to = pieces.back().to + pieces.back().bytes;
    }
    return pieces;
  }

 private:
  std::minstd_rand engine_;
};

}  // namespace hvd::test
