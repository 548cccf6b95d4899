// What the tests of the kernels share: a plain reference of every reduction, random data with all the awkward values,
// arrays between guards. Written for clarity, one element at a time, and knows nothing of the implementation.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float8.h"
#include "base/half.h"
#include "collective/kernels/kernels.h"
#include "native/base/reduce_ops.h"
#include "native/harness/harness.h"

namespace hvd::test {

using collective::kernels::StoreMode;
using hvd::DType;
using hvd::ReduceOp;

inline constexpr DType kDTypes[] = {DType::kUint8,   DType::kInt8,         DType::kUint16,    DType::kInt16,
                                    DType::kInt32,   DType::kInt64,        DType::kFloat16,   DType::kFloat32,
                                    DType::kFloat64, DType::kBool,         DType::kBfloat16,  DType::kUint32,
                                    DType::kUint64,  DType::kFloat8E4m3fn, DType::kFloat8E5m2};
// Runs the body once per variant of this machine and puts the machine's own choice back.
template <class Body>
void ForEachVariant(const Body& body) {
  const std::string own = collective::kernels::SimdName();
  for (const char* name : {"scalar", "neon", "avx2", "avx512"}) {
    if (!collective::kernels::SetSimd(name)) continue;
    EXPECT_EQ(std::string(name), collective::kernels::SimdName());
    body(name);
  }
  EXPECT(collective::kernels::SetSimd(own.c_str()));
}

template <class T>
T ReadAs(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
T ScaleReference(T value, double factor) {
  if constexpr (std::is_floating_point_v<T>) {
    volatile T product = value * static_cast<T>(factor);  // volatile: not fused with what follows
    return product;
  } else {
    if (factor == 1.0) return value;
    const long double product = static_cast<double>(value) * factor;
    if (product != product) return 0;
    if (product >= static_cast<long double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    if (product <= static_cast<long double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    return static_cast<T>(product);
  }
}

template <class T>
T CombineReference(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return op == ReduceOp::kSum || op == ReduceOp::kMin || op == ReduceOp::kMax ? a + b : a * b;
    if (op == ReduceOp::kSum) return a + b;
    if (op == ReduceOp::kProduct) return a * b;
  } else {
    using Wrapping = unsigned __int128;
    if (op == ReduceOp::kSum) return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
    if (op == ReduceOp::kProduct) return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
  }
  if (op == ReduceOp::kMin) return a < b ? a : b;
  return a > b ? a : b;
}

template <class T>
T ReduceReference(const collective::kernels::ReduceArgs& args, const std::vector<T>& values) {
  T result = ScaleReference(values[0], args.factors.pre);
  for (size_t s = 1; s < values.size(); ++s) {
    result = CombineReference(args.op, result, ScaleReference(values[s], args.factors.pre));
  }
  return ScaleReference(result, args.factors.post);
}

// Element i of the sources as the memory that must come out.
template <class T>
void ReferenceAs(const collective::kernels::ReduceArgs& args, size_t i, char* out) {
  std::vector<T> values;
  for (int s = 0; s < args.n_srcs; ++s) {
    values.push_back(ReadAs<T>(static_cast<const char*>(args.srcs[s]) + i * sizeof(T)));
  }
  const T result = ReduceReference(args, values);
  std::memcpy(out, &result, sizeof(T));
}

// A float of 16 or 8 bits as float32, and back.
inline float ReadSmall(DType dtype, const char* at) {
  switch (dtype) {
    case DType::kFloat16:
      return hvd::FloatFromHalf(ReadAs<uint16_t>(at));
    case DType::kBfloat16:
      return hvd::FloatFromBfloat16(ReadAs<uint16_t>(at));
    case DType::kFloat8E4m3fn:
      return hvd::Float8E4m3::ToFloat(ReadAs<uint8_t>(at));
    default:
      return hvd::Float8E5m2::ToFloat(ReadAs<uint8_t>(at));
  }
}
inline void WriteSmall(DType dtype, float value, char* at) {
  const uint16_t half = dtype == DType::kFloat16 ? hvd::HalfFromFloat(value) : hvd::Bfloat16FromFloat(value);
  const bool e4m3 = dtype == DType::kFloat8E4m3fn;
  const uint8_t eighth = e4m3 ? hvd::Float8E4m3::FromFloat(value) : hvd::Float8E5m2::FromFloat(value);
  std::memcpy(at, SizeOf(dtype) == 2 ? static_cast<const void*>(&half) : &eighth, SizeOf(dtype));
}

inline void ReferenceSmall(const collective::kernels::ReduceArgs& args, size_t i, char* out) {
  std::vector<float> values;
  for (int s = 0; s < args.n_srcs; ++s) {
    values.push_back(ReadSmall(args.dtype, static_cast<const char*>(args.srcs[s]) + i * SizeOf(args.dtype)));
  }
  WriteSmall(args.dtype, ReduceReference(args, values), out);
}

inline void ReferenceBool(const collective::kernels::ReduceArgs& args, size_t i, char* out) {
  const bool any = args.op == ReduceOp::kSum || args.op == ReduceOp::kMax;
  bool result = !any;
  for (int s = 0; s < args.n_srcs; ++s) {
    const bool value = static_cast<const char*>(args.srcs[s])[i] != 0;
    result = any ? result || value : result && value;
  }
  *out = result;
}

inline void Reference(const collective::kernels::ReduceArgs& args, size_t i, char* out) {
  switch (args.dtype) {
    case DType::kUint8:
      return ReferenceAs<uint8_t>(args, i, out);
    case DType::kInt8:
      return ReferenceAs<int8_t>(args, i, out);
    case DType::kUint16:
      return ReferenceAs<uint16_t>(args, i, out);
    case DType::kInt16:
      return ReferenceAs<int16_t>(args, i, out);
    case DType::kUint32:
      return ReferenceAs<uint32_t>(args, i, out);
    case DType::kInt32:
      return ReferenceAs<int32_t>(args, i, out);
    case DType::kUint64:
      return ReferenceAs<uint64_t>(args, i, out);
    case DType::kInt64:
      return ReferenceAs<int64_t>(args, i, out);
    case DType::kFloat32:
      return ReferenceAs<float>(args, i, out);
    case DType::kFloat64:
      return ReferenceAs<double>(args, i, out);
    case DType::kBool:
      return ReferenceBool(args, i, out);
    default:
      return ReferenceSmall(args, i, out);
  }
}

inline bool IsNan(DType dtype, const char* at) {
  if (!IsFloat(dtype)) return false;
  if (dtype == DType::kFloat32) return std::isnan(ReadAs<float>(at));
  if (dtype == DType::kFloat64) return std::isnan(ReadAs<double>(at));
  return std::isnan(ReadSmall(dtype, at));
}

inline bool SameValue(DType dtype, const char* a, const char* b) {
  return std::memcmp(a, b, SizeOf(dtype)) == 0 || (IsNan(dtype, a) && IsNan(dtype, b));
}

// A value of the dtype: a special one (infinity, NaN, denormals, zeros, extremes), any bits, or an ordinary number.
inline void RandomValue(DType dtype, std::mt19937_64& random, char* at) {
  const uint64_t bits = random();
  const size_t bytes = SizeOf(dtype);
  std::memcpy(at, &bits, bytes);
  const uint64_t kind = random() % 8;
  if (!IsFloat(dtype)) {
    if (dtype == DType::kBool) *at = static_cast<char>(kind < 3 ? 0 : kind < 6 ? 1 : bits);
    return;
  }
  constexpr double kSpecial[] = {0.0,   -0.0, INFINITY, -INFINITY, NAN,    1.0,   -1.0, 5e-324,
                                 1e-45, 6e-8, 65504,    -65520,    3.4e38, 1e308, 1e-40};
  if (kind == 0) return;
  double value = static_cast<double>(static_cast<int64_t>(bits) >> 40) / 4096.0;
  if (kind == 1) value = kSpecial[bits % std::size(kSpecial)];
  const float single = static_cast<float>(value);
  if (dtype == DType::kFloat64) std::memcpy(at, &value, 8);
  if (dtype == DType::kFloat32) std::memcpy(at, &single, 4);
  if (bytes <= 2) WriteSmall(dtype, single, at);
}

// An array that begins `offset` bytes after a cache line, between two guards whose bytes must not change.
class Array {
 public:
  Array(DType dtype, size_t elems, size_t offset, std::mt19937_64& random) : bytes_(elems * SizeOf(dtype)) {
    memory_.assign(bytes_ + 3 * kGuard + offset, kMark);
    const size_t misaligned = reinterpret_cast<uintptr_t>(memory_.data()) % 64;
    begin_ = kGuard + (64 - misaligned) % 64 + offset;
    for (size_t i = 0; i < elems; ++i) RandomValue(dtype, random, data() + i * SizeOf(dtype));
  }
  Array(Array&&) = default;
  char* data() { return memory_.data() + begin_; }
  bool GuardsHold() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if ((i < begin_ || i >= begin_ + bytes_) && memory_[i] != kMark) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr char kMark = 0x5a;
  std::vector<char> memory_;
  size_t begin_ = 0, bytes_;
};

template <class T>
std::vector<T> Reduced(DType dtype, ReduceOp op, collective::kernels::Factors factors,
                       const std::vector<std::vector<T>>& sources) {
  std::vector<const void*> srcs;
  for (const auto& source : sources) srcs.push_back(source.data());
  std::vector<T> result(sources[0].size());
  void* dst = result.data();
  collective::kernels::Reduce({.dtype = dtype,
                               .op = op,
                               .factors = factors,
                               .srcs = srcs.data(),
                               .n_srcs = static_cast<int>(srcs.size()),
                               .dsts = &dst,
                               .n_dsts = 1,
                               .elems = result.size()});
  return result;
}

inline std::string Describe(const char* variant, DType dtype, ReduceOp op, size_t elems) {
  return std::string(variant) + " " + NameOf(dtype) + " " + NameOf(op) + " elems " + std::to_string(elems);
}

}  // namespace hvd::test
