// Tests of base/half.h over all 16-bit patterns, and of the kernels' own conversions against it.
#include "base/half.h"

#include <bit>
#include <cmath>
#include <vector>

#include "native/collective/kernels/reference.h"
#include "native/harness/harness.h"

namespace hvd::test::base_half {

namespace {

using hvd::DType;
using hvd::ReduceOp;

}  // namespace

TEST(HalfIsIeeeBinary16) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const int exponent = (h >> 10) & 31, mantissa = h & 1023;
    const float value = hvd::FloatFromHalf(static_cast<uint16_t>(h));
    if (exponent == 31) {
      EXPECT(mantissa == 0 ? std::isinf(value) : std::isnan(value));
      EXPECT_EQ(std::signbit(value), (h >> 15) != 0);
    } else {
      const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      EXPECT_EQ(static_cast<double>(value), (h >> 15) != 0 ? -magnitude : magnitude);
    }
    const uint16_t back = hvd::HalfFromFloat(value);
    EXPECT_EQ(static_cast<uint32_t>(back), exponent == 31 && mantissa != 0 ? h | 0x200u : h);
  }
}

TEST(HalfRoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7c00;
       ++h) {  // between each magnitude and the next; above the last one lies infinity at 2^16
    const float low = hvd::FloatFromHalf(static_cast<uint16_t>(h));
    const float high = h == 0x7bff ? 65536.0f : hvd::FloatFromHalf(static_cast<uint16_t>(h + 1));
    const float middle = low + (high - low) / 2;
    const uint32_t even = h % 2 == 0 ? h : h + 1;
    EXPECT_EQ(static_cast<uint32_t>(hvd::HalfFromFloat(middle)), even);
    EXPECT_EQ(static_cast<uint32_t>(hvd::HalfFromFloat(-middle)), even | 0x8000u);
    EXPECT_EQ(static_cast<uint32_t>(hvd::HalfFromFloat(std::nextafter(middle, 0.0f))), h);
    EXPECT_EQ(static_cast<uint32_t>(hvd::HalfFromFloat(std::nextafter(middle, INFINITY))), h + 1);
  }
  EXPECT_EQ(hvd::HalfFromFloat(1e30f), 0x7c00);
  EXPECT_EQ(hvd::HalfFromFloat(std::bit_cast<float>(0x7f800001u)), 0x7e00);  // a NaN whose payload has no bit in a half
}

TEST(Bfloat16RoundsToNearestEven) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const float value = hvd::FloatFromBfloat16(static_cast<uint16_t>(b));
    const uint32_t bits = b << 16;
    const bool nan = (b & 0x7fff) > 0x7f80;
    EXPECT_EQ(std::bit_cast<uint32_t>(value), bits);
    EXPECT_EQ(static_cast<uint32_t>(hvd::Bfloat16FromFloat(value)), nan ? b | 0x40u : b);
    if ((b & 0x7fff) >= 0x7f80) continue;
    EXPECT_EQ(static_cast<uint32_t>(hvd::Bfloat16FromFloat(std::bit_cast<float>(bits | 0x7fffu))), b);
    EXPECT_EQ(static_cast<uint32_t>(hvd::Bfloat16FromFloat(std::bit_cast<float>(bits | 0x8000u))), b + b % 2);
    EXPECT_EQ(static_cast<uint32_t>(hvd::Bfloat16FromFloat(std::bit_cast<float>(bits | 0x8001u))), b + 1);
  }
  EXPECT_EQ(hvd::Bfloat16FromFloat(std::bit_cast<float>(0x7fffffffu)), 0x7fff);  // would overflow into the sign
}

// Every 16-bit pattern through the vector code: x + 0 keeps it, -0 becomes +0, a NaN is made quiet.
TEST(KernelsConvertEveryHalf) {
  std::vector<uint16_t> all(0x10000), zero(0x10000);
  for (uint32_t i = 0; i < 0x10000; ++i) all[i] = static_cast<uint16_t>(i);
  ForEachVariant([&](const char*) {
    for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
      const auto result = Reduced<uint16_t>(dtype, ReduceOp::kSum, {}, {all, zero});
      for (uint32_t i = 0; i < 0x10000; ++i) {
        const char* in = reinterpret_cast<const char*>(&all[i]);
        const char* out = reinterpret_cast<const char*>(&result[i]);
        EXPECT(i == 0x8000 ? result[i] == 0 : SameValue(dtype, in, out));
      }
    }
  });
}

// Every kind of float32 is rounded as base/half.h does: float16 made by x * factor from all patterns, with many
// factors.
TEST(KernelsRoundLikeTheReference) {
  ForEachVariant([&](const char* variant) {
    for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
      for (double factor : {1.0 / 3, 1e-3, 1e-7, 1.7e3, 1e-30, 3e38, 0.9998779296875}) {
        std::vector<uint16_t> all(0x10000);
        for (uint32_t i = 0; i < 0x10000; ++i) all[i] = static_cast<uint16_t>(i);
        const void* src = all.data();
        const hvd::collective::kernels::ReduceArgs args = {.dtype = dtype,
                                                           .op = ReduceOp::kSum,
                                                           .factors = {1.0, factor},
                                                           .srcs = &src,
                                                           .n_srcs = 1,
                                                           .dsts = nullptr,
                                                           .n_dsts = 0,
                                                           .elems = all.size()};
        const auto result = Reduced<uint16_t>(dtype, ReduceOp::kSum, {1.0, factor}, {all});
        size_t wrong = 0;
        for (size_t i = 0; i < all.size(); ++i) {
          char expected[8] = {};
          ReferenceSmall(args, i, expected);
          wrong += !SameValue(dtype, expected, reinterpret_cast<const char*>(&result[i]));
        }
        if (wrong != 0) hvd::test::Fail(__FILE__, __LINE__, Describe(variant, dtype, ReduceOp::kSum, wrong));
      }
    }
  });
}

}  // namespace hvd::test::base_half
