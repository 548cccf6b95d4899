#include "base/siphash.h"

#include <bit>

namespace hvd {
namespace {

uint64_t LoadLe(const uint8_t* p) {
  uint64_t v = 0;
  for (int i = 0; i < 8; ++i) v |= static_cast<uint64_t>(p[i]) << (8 * i);
  return v;
}

}  // namespace

// "somepseudorandomlygeneratedbytes" under the key; the 128-bit variant marks v1.
SipHash128::SipHash128(const std::array<uint8_t, 16>& key) {
  const uint64_t k0 = LoadLe(key.data()), k1 = LoadLe(key.data() + 8);
  v0_ = k0 ^ 0x736f6d6570736575;
  v1_ = k1 ^ 0x646f72616e646f6d ^ 0xee;
  v2_ = k0 ^ 0x6c7967656e657261;
  v3_ = k1 ^ 0x7465646279746573;
}

void SipHash128::Rounds(int n) {
  for (; n > 0; --n) {
    v0_ += v1_, v1_ = std::rotl(v1_, 13), v1_ ^= v0_, v0_ = std::rotl(v0_, 32);
    v2_ += v3_, v3_ = std::rotl(v3_, 16), v3_ ^= v2_;
    v0_ += v3_, v3_ = std::rotl(v3_, 21), v3_ ^= v0_;
    v2_ += v1_, v1_ = std::rotl(v1_, 17), v1_ ^= v2_, v2_ = std::rotl(v2_, 32);
  }
}

void SipHash128::Word(uint64_t m) {
  v3_ ^= m;
  Rounds(2);
  v0_ ^= m;
}

void SipHash128::Update(std::span<const std::byte> bytes) {
  const uint8_t* p = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  for (; left > 0 && total_ % 8 != 0; --left, ++total_) {
    tail_ |= static_cast<uint64_t>(*p++) << (8 * (total_ % 8));
    if (total_ % 8 == 7) Word(tail_), tail_ = 0;
  }
  for (; left >= 8; left -= 8, p += 8, total_ += 8) Word(LoadLe(p));
  for (; left > 0; --left, ++total_) tail_ |= static_cast<uint64_t>(*p++) << (8 * (total_ % 8));
}

std::array<uint8_t, 16> SipHash128::Finish() {
  Word(tail_ | (total_ & 0xff) << 56);
  v2_ ^= 0xee;
  Rounds(4);
  const uint64_t low = v0_ ^ v1_ ^ v2_ ^ v3_;
  v1_ ^= 0xdd;
  Rounds(4);
  const uint64_t high = v0_ ^ v1_ ^ v2_ ^ v3_;
  std::array<uint8_t, 16> code;
  for (int i = 0; i < 8; ++i) {
    code[i] = static_cast<uint8_t>(low >> (8 * i));
    code[8 + i] = static_cast<uint8_t>(high >> (8 * i));
  }
  return code;
}

bool EqualCodes(const std::array<uint8_t, 16>& a, std::span<const std::byte, 16> b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ static_cast<uint8_t>(b[i]);
  return difference == 0;
}

}  // namespace hvd
