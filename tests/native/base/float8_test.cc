// Tests of base/float8.h over all codes and what lies between them, and of the kernels' own conversions against it.
// tests/unit/native/test_float8.py compares with PyTorch and ml_dtypes.
#include "base/float8.h"

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "native/collective/kernels/reference.h"
#include "native/harness/harness.h"

namespace hvd::test::base_float8 {

namespace {

using hvd::DType;
using hvd::ReduceOp;

struct Layout {
  int mantissa_bits, bias, special;  // the first code that is no finite number
};
constexpr Layout kE4m3 = {3, 7, 0x7f}, kE5m2 = {2, 15, 0x7c};

// What a code would be if all were finite numbers, by the definition.
double Magnitude(const Layout& layout, int code) {
  const int exponent = code >> layout.mantissa_bits, one = 1 << layout.mantissa_bits, mantissa = code & (one - 1);
  const int scale = 1 - layout.bias - layout.mantissa_bits;
  return exponent == 0 ? std::ldexp(mantissa, scale) : std::ldexp(one + mantissa, scale + exponent - 1);
}

template <class Format>
void CheckCodes(const Layout& layout) {
  for (int code = 0; code < 256; ++code) {
    const int magnitude = code & 0x7f;
    const float value = Format::ToFloat(static_cast<uint8_t>(code));
    EXPECT_EQ(std::signbit(value), code >= 0x80);
    if (magnitude < layout.special) {
      EXPECT_EQ(static_cast<double>(std::fabs(value)), Magnitude(layout, magnitude));
    } else {
      EXPECT(magnitude == 0x7c ? std::isinf(value) : std::isnan(value));
    }
    const int back = std::isnan(value) ? code | 0x7f : code;
    EXPECT_EQ(static_cast<int>(Format::FromFloat(value)), back);
  }
}

template <class Format>
void CheckRounding(const Layout& layout) {
  for (int code = 0; code < layout.special; ++code) {
    const double low = Magnitude(layout, code), high = Magnitude(layout, code + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    const int even = code + code % 2;
    EXPECT_EQ(static_cast<int>(Format::FromFloat(middle)), even);
    EXPECT_EQ(static_cast<int>(Format::FromFloat(-middle)), even | 0x80);
    EXPECT_EQ(static_cast<int>(Format::FromFloat(std::nextafter(middle, 0.0f))), code);
    EXPECT_EQ(static_cast<int>(Format::FromFloat(std::nextafter(middle, INFINITY))), code + 1);
  }
  for (const float large : {static_cast<float>(Magnitude(layout, layout.special)), 1e9f, 3e38f, INFINITY}) {
    EXPECT_EQ(static_cast<int>(Format::FromFloat(large)), layout.special);
    EXPECT_EQ(static_cast<int>(Format::FromFloat(-large)), layout.special | 0x80);
  }
  EXPECT_EQ(static_cast<int>(Format::FromFloat(std::bit_cast<float>(0x7f800001u))), 0x7f);
  EXPECT_EQ(static_cast<int>(Format::FromFloat(std::bit_cast<float>(0xffffffffu))), 0xff);
  EXPECT_EQ(static_cast<int>(Format::FromFloat(std::bit_cast<float>(0x80000001u))), 0x80);
}

std::vector<uint8_t> EveryCode() {
  std::vector<uint8_t> all(256);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  return all;
}

}  // namespace

TEST(Float8CodesAreWhatOfp8Defines) {
  CheckCodes<hvd::Float8E4m3>(kE4m3);
  CheckCodes<hvd::Float8E5m2>(kE5m2);
}

TEST(Float8RoundsToNearestEven) {
  CheckRounding<hvd::Float8E4m3>(kE4m3);
  CheckRounding<hvd::Float8E5m2>(kE5m2);
}

// x + 0 keeps every code, but for -0 and the bits of a NaN.
TEST(KernelsConvertEveryFloat8) {
  const std::vector<uint8_t> all = EveryCode(), zero(all.size());
  ForEachVariant([&](const char*) {
    for (const DType dtype : {DType::kFloat8E4m3fn, DType::kFloat8E5m2}) {
      const auto result = Reduced<uint8_t>(dtype, ReduceOp::kSum, {}, {all, zero});
      for (size_t i = 0; i < all.size(); ++i) {
        const auto at = [i](const std::vector<uint8_t>& codes) { return reinterpret_cast<const char*>(&codes[i]); };
        EXPECT(i == 0x80 ? result[i] == 0 : SameValue(dtype, at(all), at(result)));
      }
    }
  });
}

// Every kind of float32, made by code * factor, is rounded as base/float8.h does.
TEST(KernelsRoundFloat8LikeTheReference) {
  const std::vector<uint8_t> all = EveryCode();
  std::mt19937 random(17);
  for (int i = 0; i < 3000; ++i) {
    const float factor = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(factor) || factor == 1.0f) continue;
    ForEachVariant([&](const char* variant) {
      for (const DType dtype : {DType::kFloat8E4m3fn, DType::kFloat8E5m2}) {
        const auto result = Reduced<uint8_t>(dtype, ReduceOp::kSum, {1.0, factor}, {all});
        size_t wrong = 0;
        for (size_t c = 0; c < all.size(); ++c) {
          char expected;
          WriteSmall(dtype, ReadSmall(dtype, reinterpret_cast<const char*>(&all[c])) * factor, &expected);
          wrong += !SameValue(dtype, &expected, reinterpret_cast<const char*>(&result[c]));
        }
        if (wrong != 0) hvd::test::Fail(__FILE__, __LINE__, Describe(variant, dtype, ReduceOp::kSum, wrong));
      }
    });
  }
}

}  // namespace hvd::test::base_float8
