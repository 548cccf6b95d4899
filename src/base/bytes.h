// Little-endian bytes of wire formats: a writer that appends to a vector, a reader that checks every bound. Used by the
// negotiation's frames. The reader fails for good at the first byte that is not there: read everything, then ask
// status(). No allocation is ever sized by an unchecked number from the wire: see Count().
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd {

class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>* out) : out_(out) {}

  void U8(uint8_t v) { out_->push_back(static_cast<std::byte>(v)); }
  void U32(uint32_t v) { Fixed(v); }
  void U64(uint64_t v) { Fixed(v); }
  void F64(double v) { Fixed(std::bit_cast<uint64_t>(v)); }
  // 7 bits a byte, low first: 1 byte below 128, 2 below 16384.
  void Varint(uint64_t v) {
    while (v >= 0x80) {
      U8(static_cast<uint8_t>(v | 0x80));
      v >>= 7;
    }
    U8(static_cast<uint8_t>(v));
  }
  void Signed(int64_t v) { Varint((static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63)); }
  void Bytes(std::span<const std::byte> bytes) { out_->insert(out_->end(), bytes.begin(), bytes.end()); }
  void Text(std::string_view s) {
    Varint(s.size());
    Bytes(std::as_bytes(std::span(s.data(), s.size())));
  }
  size_t size() const { return out_->size(); }

 private:
  template <class T>
  void Fixed(T v) {
    const size_t at = out_->size();
    out_->resize(at + sizeof(T));
    StoreLe(out_->data() + at, v);
  }

 public:
  template <class T>
  static void StoreLe(std::byte* at, T v) {
    for (size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>(v >> (8 * i));
  }

 private:
  std::vector<std::byte>* out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool ok() const { return ok_; }
  bool AtEnd() const { return at_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }
  Status status(const char* what) const {
    return ok_ ? Status() : Status(Code::kInternal, std::string(what) + " is cut short or malformed");
  }
  void Fail() {
    ok_ = false;
    at_ = end_;
  }

  uint8_t U8() {
    if (at_ == end_) return Fail(), 0;
    return static_cast<uint8_t>(*at_++);
  }
  uint32_t U32() { return Fixed<uint32_t>(); }
  uint64_t U64() { return Fixed<uint64_t>(); }
  double F64() { return std::bit_cast<double>(Fixed<uint64_t>()); }
  uint64_t Varint() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t b = U8();
      if (shift == 63 && b > 1) return Fail(), 0;
      v |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (b < 0x80) return ok_ ? v : 0;
    }
    return Fail(), 0;
  }
  // A number up to `max`; more is a failure.
  uint32_t Varint32(uint32_t max = UINT32_MAX) {
    const uint64_t v = Varint();
    if (v > max) return Fail(), 0;
    return static_cast<uint32_t>(v);
  }
  int64_t Signed() {
    const uint64_t v = Varint();
    return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
  }
  // The number of items that follow, each at least min_bytes long: never more than can be there.
  size_t Count(size_t min_bytes = 1) {
    const uint64_t n = Varint();
    if (n > left() / min_bytes) return Fail(), 0;
    return static_cast<size_t>(n);
  }
  std::string_view Text() {
    const size_t n = Count();
    const auto* s = reinterpret_cast<const char*>(at_);
    at_ += n;
    return {s, n};
  }

 private:
  template <class T>
  T Fixed() {
    if (left() < sizeof(T)) return Fail(), T{0};
    T v = 0;
    for (size_t i = 0; i < sizeof(T); ++i) v |= static_cast<T>(static_cast<uint8_t>(at_[i])) << (8 * i);
    at_ += sizeof(T);
    return v;
  }

  const std::byte* at_;
  const std::byte* end_;
  bool ok_ = true;
};

}  // namespace hvd
