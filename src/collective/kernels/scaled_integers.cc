// Integer reductions with a factor (Average, above all): each multiplication is done in double and truncated toward
// zero, saturating at the limits of the type; an average of 64-bit integers is exact. Works block
// by block in the nearest cache on top of the variant's own kernels; nothing here depends on the machine.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/average.h"
#include "collective/kernels/table.h"

namespace hvd::collective::kernels {
namespace {

constexpr size_t kBlock = 4096;

template <class T>
T Truncated(double value) {
  using Limits = std::numeric_limits<T>;
  // 2^digits is exact in double, max() of 64 bits is not.
  static const double kAbove = std::ldexp(1.0, Limits::digits);
  if (value >= kAbove) return Limits::max();
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  return value == value ? static_cast<T>(value) : T{0};
}

// Whether the product with an average's factor, which is 2^-52 of itself too large, may reach the next integer.
template <class T>
bool IsWide(T value) {
  constexpr T kExact = T{1} << 50;
  return value > kExact || (std::is_signed_v<T> && value < T{0} - kExact);
}

template <class T>
void ScaleAs(char* to, const char* from, size_t bytes, double factor) {
  for (size_t at = 0; at < bytes; at += sizeof(T)) {
    T value;
    std::memcpy(&value, from + at, sizeof(T));
    value = Truncated<T>(static_cast<double>(value) * factor);
    std::memcpy(to + at, &value, sizeof(T));
  }
}

template <class T>
void ScaleWide(char* to, const char* from, size_t bytes, double factor) {
  const auto divisor = static_cast<T>(DivisorOf(factor));
  if (divisor == 0) return ScaleAs<T>(to, from, bytes, factor);
  for (size_t at = 0; at < bytes; at += sizeof(T)) {
    T value;
    std::memcpy(&value, from + at, sizeof(T));
    // A division takes several times as long as a multiplication.
    value = IsWide(value) ? value / divisor : static_cast<T>(static_cast<double>(value) * factor);
    std::memcpy(to + at, &value, sizeof(T));
  }
}

void ScaleIntegers(DType dtype, char* to, const char* from, size_t bytes, double factor) {
  if (factor == 1.0) {
    if (to != from) std::memcpy(to, from, bytes);
    return;
  }
  switch (dtype) {
    case DType::kUint8:
      return ScaleAs<uint8_t>(to, from, bytes, factor);
    case DType::kInt8:
      return ScaleAs<int8_t>(to, from, bytes, factor);
    case DType::kUint16:
      return ScaleAs<uint16_t>(to, from, bytes, factor);
    case DType::kInt16:
      return ScaleAs<int16_t>(to, from, bytes, factor);
    case DType::kUint32:
      return ScaleAs<uint32_t>(to, from, bytes, factor);
    case DType::kInt32:
      return ScaleAs<int32_t>(to, from, bytes, factor);
    case DType::kUint64:
      return ScaleWide<uint64_t>(to, from, bytes, factor);
    default:
      return ScaleWide<int64_t>(to, from, bytes, factor);
  }
}

// result = post * (pre*srcs[0] op pre*srcs[1] op ...) for the bytes [at, at + bytes) of the sources.
void ReduceBlock(const KernelTable& table, const ReduceArgs& args, size_t at, size_t bytes, char* result) {
  alignas(64) char next[kBlock];
  const void* const sources[2] = {result, next};
  void* const dst = result;
  const ReduceArgs step = {.dtype = args.dtype,
                           .op = args.op,
                           .factors = {},
                           .srcs = sources,
                           .n_srcs = 2,
                           .dsts = &dst,
                           .n_dsts = 1,
                           .elems = bytes / SizeOf(args.dtype)};
  ScaleIntegers(args.dtype, result, static_cast<const char*>(args.srcs[0]) + at, bytes, args.factors.pre);
  for (int s = 1; s < args.n_srcs; ++s) {
    ScaleIntegers(args.dtype, next, static_cast<const char*>(args.srcs[s]) + at, bytes, args.factors.pre);
    table.reduce(step);
  }
  ScaleIntegers(args.dtype, result, result, bytes, args.factors.post);
}

}  // namespace

void ReduceScaledIntegers(const KernelTable& table, const ReduceArgs& args) {
  alignas(64) char result[kBlock];
  const size_t all = args.elems * SizeOf(args.dtype);
  for (size_t at = 0; at < all; at += kBlock) {
    const size_t bytes = all - at < kBlock ? all - at : kBlock;
    ReduceBlock(table, args, at, bytes, result);
    for (int k = 0; k < args.n_dsts; ++k) {
      char* const to = static_cast<char*>(args.dsts[k]) + at;
      if (args.store == StoreMode::kStreaming) {
        table.stream(to, result, bytes);
      } else {
        std::memcpy(to, result, bytes);
      }
    }
  }
}

}  // namespace hvd::collective::kernels
