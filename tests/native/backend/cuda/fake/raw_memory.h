// The bytes that fake devices work on. They may be written by two streams at once: that is the mistake of a test, which
// shall be seen as poison and as a counted fault, not as a report of the thread sanitizer about the fake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fake {

constexpr unsigned char kPoison = 0xEE;

#define FAKE_RAW __attribute__((noinline, no_sanitize("thread"), no_sanitize("undefined"), unused)) static

// volatile: a loop that the compiler made a call of memcpy would be watched after all.
FAKE_RAW void RawCopy(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<volatile unsigned char*>(to);
  auto* in = static_cast<const volatile unsigned char*>(from);
  size_t i = 0;
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 8 == 0) {
    for (; i + 8 <= bytes; i += 8)
      *reinterpret_cast<volatile uint64_t*>(out + i) = *reinterpret_cast<const volatile uint64_t*>(in + i);
  }
  for (; i < bytes; ++i) out[i] = in[i];
}

// `pattern` of 1, 2 or 4 bytes, again and again.
FAKE_RAW void RawFill(void* to, uint32_t pattern, size_t pattern_bytes, size_t bytes) {
  auto* out = static_cast<volatile unsigned char*>(to);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<unsigned char>(pattern >> (8 * (i % pattern_bytes)));
}

inline void RawPoison(void* to, size_t bytes) { RawFill(to, kPoison, 1, bytes); }

FAKE_RAW bool RawEqual(const void* a, const void* b, size_t bytes) {
  auto* first = static_cast<const volatile unsigned char*>(a);
  auto* second = static_cast<const volatile unsigned char*>(b);
  for (size_t i = 0; i < bytes; ++i) {
    if (first[i] != second[i]) return false;
  }
  return true;
}

FAKE_RAW bool RawIsPoison(const void* data, size_t bytes) {
  auto* in = static_cast<const volatile unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) {
    if (in[i] != kPoison) return false;
  }
  return true;
}

#undef FAKE_RAW

}  // namespace fake
