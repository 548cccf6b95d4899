// SipHash-2-4 with 128 bits of output: a keyed code that nobody without the key can forge (Aumasson and Bernstein,
// "SipHash: a fast short-input PRF", 2012). Used to authenticate control frames. Not for tables, and not a hash without
// a secret key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hvd {

class SipHash128 {
 public:
  explicit SipHash128(const std::array<uint8_t, 16>& key);
  void Update(std::span<const std::byte> bytes);
  // The object is used up afterwards.
  std::array<uint8_t, 16> Finish();

 private:
  void Word(uint64_t m);
  void Rounds(int n);

  uint64_t v0_, v1_, v2_, v3_;
  uint64_t tail_ = 0;  // bytes of an unfinished word, low first
  uint64_t total_ = 0;
};

// Takes the same time wherever the two differ.
bool EqualCodes(const std::array<uint8_t, 16>& a, std::span<const std::byte, 16> b);

}  // namespace hvd
