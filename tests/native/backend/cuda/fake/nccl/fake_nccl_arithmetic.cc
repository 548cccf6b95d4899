#include "native/backend/cuda/fake/nccl/fake_nccl_arithmetic.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/half.h"

namespace fake {
namespace {

// How an element lies in memory, and as what it is computed.
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value Load(Stored stored) { return stored; }
  static Stored Store(Value value) { return value; }
};
struct Half {
  using Stored = uint16_t;
  using Value = float;
  static Value Load(Stored stored) { return hvd::FloatFromHalf(stored); }
  static Stored Store(Value value) { return hvd::HalfFromFloat(value); }
};
struct Bfloat16 {
  using Stored = uint16_t;
  using Value = float;
  static Value Load(Stored stored) { return hvd::FloatFromBfloat16(stored); }
  static Stored Store(Value value) { return hvd::Bfloat16FromFloat(value); }
};

// Calls `body` with the description of a type.
template <class Body>
void WithType(int type, const Body& body) {
  switch (type) {
    case 0:
      return body(Plain<int8_t>());
    case 1:
      return body(Plain<uint8_t>());
    case 2:
      return body(Plain<int32_t>());
    case 3:
      return body(Plain<uint32_t>());
    case 4:
      return body(Plain<int64_t>());
    case 5:
      return body(Plain<uint64_t>());
    case 6:
      return body(Half());
    case 7:
      return body(Plain<float>());
    case 8:
      return body(Plain<double>());
    default:
      return body(Bfloat16());
  }
}

// Whole numbers wrap around, which only unsigned ones may.
template <class V>
auto Wrapping(V value) {
  if constexpr (std::is_integral_v<V>) {
    return static_cast<uint64_t>(value);
  } else {
    return value;
  }
}
template <class V>
V Apply(int op, V a, V b) {
  if (op == kProduct) return static_cast<V>(Wrapping(a) * Wrapping(b));
  if (op == kMax) return std::max(a, b);
  if (op == kMin) return std::min(a, b);
  return static_cast<V>(Wrapping(a) + Wrapping(b));
}

// value = change(value) for all elements.
template <class T, class Change>
void ForAll(void* data, size_t bytes, const Change& change) {
  for (size_t at = 0; at + sizeof(typename T::Stored) <= bytes; at += sizeof(typename T::Stored)) {
    typename T::Stored element;
    std::memcpy(&element, static_cast<char*>(data) + at, sizeof element);
    element = T::Store(change(T::Load(element), at));
    std::memcpy(static_cast<char*>(data) + at, &element, sizeof element);
  }
}

}  // namespace

size_t SizeOf(int type) {
  static constexpr size_t kSizes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}
const char* NameOf(int type) {
  static constexpr const char* kNames[kTypes] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                                 "uint64", "float16", "float32", "float64", "bfloat16"};
  return kNames[type];
}

void Combine(int type, int op, void* to, const void* from, size_t bytes) {
  WithType(type, [&](auto description) {
    using T = decltype(description);
    ForAll<T>(to, bytes, [&](typename T::Value value, size_t at) {
      typename T::Stored other;
      std::memcpy(&other, static_cast<const char*>(from) + at, sizeof other);
      return Apply<typename T::Value>(op, value, T::Load(other));
    });
  });
}

void Divide(int type, void* data, size_t bytes, int n) {
  WithType(type, [&](auto description) {
    using T = decltype(description);
    using V = typename T::Value;
    ForAll<T>(data, bytes, [n](V value, size_t) { return static_cast<V>(value / static_cast<V>(n)); });
  });
}

void Multiply(int type, void* data, size_t bytes, const void* scalar) {
  WithType(type, [&](auto description) {
    using T = decltype(description);
    typename T::Stored stored;
    std::memcpy(&stored, scalar, sizeof stored);
    const auto factor = T::Load(stored);
    ForAll<T>(data, bytes, [factor](auto value, size_t) { return Apply(kProduct, value, factor); });
  });
}

}  // namespace fake
