// Tests of the Adasum arithmetic of collective/kernels/kernels.h: against plain sums, against the formula, and bit for
// bit between the variants.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "collective/kernels/kernels.h"
#include "native/collective/kernels/reference.h"
#include "native/harness/harness.h"

namespace hvd::test::collective_kernels_adasum {

namespace {

using namespace hvd::collective::kernels;
using hvd::DType;

double ElementAsDouble(DType dtype, const char* data, size_t i) {
  if (dtype == DType::kFloat64) return ReadAs<double>(data + 8 * i);
  return dtype == DType::kFloat32 ? ReadAs<float>(data + 4 * i) : ReadSmall(dtype, data + SizeOf(dtype) * i);
}

// Finite values of about 1.
std::vector<char> Vector(DType dtype, size_t elems, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<char> memory(elems * 8 + 1);
  for (size_t i = 0; i < elems; ++i) {
    const double value = static_cast<double>(static_cast<int64_t>(random())) / 9.3e18;
    const float single = static_cast<float>(value);
    char* at = memory.data() + 1 + i * SizeOf(dtype);  // not aligned
    if (SizeOf(dtype) <= 2) WriteSmall(dtype, single, at);
    if (SizeOf(dtype) == 4) std::memcpy(at, &single, 4);
    if (SizeOf(dtype) == 8) std::memcpy(at, &value, 8);
  }
  return memory;
}

constexpr DType kFloats[] = {DType::kFloat16, DType::kBfloat16,     DType::kFloat32,
                             DType::kFloat64, DType::kFloat8E4m3fn, DType::kFloat8E5m2};
constexpr size_t kAdasumLengths[] = {0, 1, 2, 15, 16, 17, 31, 33, 63, 100, 1000, 1023, 1024, 1025, 1056, 2500};

}  // namespace

TEST(DotsAreExactEnoughAndTheSameEverywhere) {
  for (DType dtype : kFloats) {
    for (size_t elems : kAdasumLengths) {
      const auto a = Vector(dtype, elems, 1), b = Vector(dtype, elems, 2);
      long double ab = 0, aa = 0, bb = 0;
      for (size_t i = 0; i < elems; ++i) {
        const long double x = ElementAsDouble(dtype, a.data() + 1, i), y = ElementAsDouble(dtype, b.data() + 1, i);
        ab += x * y, aa += x * x, bb += y * y;
      }
      std::vector<AdasumDots> all;
      ForEachVariant([&](const char*) { all.push_back(Dots(dtype, a.data() + 1, b.data() + 1, elems)); });
      for (const AdasumDots& dots : all) {
        EXPECT_EQ(std::memcmp(&dots, &all[0], sizeof(dots)), 0);
        const double tolerance = 1e-15 * static_cast<double>(elems + 1);
        EXPECT(std::fabs(dots.ab - static_cast<double>(ab)) <= tolerance);
        EXPECT(std::fabs(dots.aa - static_cast<double>(aa)) <= tolerance);
        EXPECT(std::fabs(dots.bb - static_cast<double>(bb)) <= tolerance);
      }
    }
  }
}

TEST(AdasumCombineFollowsItsFormula) {
  for (DType dtype : kFloats) {
    for (size_t elems : kAdasumLengths) {
      const auto a = Vector(dtype, elems, 3), b = Vector(dtype, elems, 4);
      const AdasumDots dots = {0.3, 0.7, 1.9};
      const double ca = 1 - 0.3 / (2 * 0.7), cb = 1 - 0.3 / (2 * 1.9);
      ForEachVariant([&](const char*) {
        for (int in_place = 0; in_place < 3; ++in_place) {
          auto x = a, y = b, separate = Vector(dtype, elems, 5);
          char* out = in_place == 0 ? separate.data() + 1 : in_place == 1 ? x.data() + 1 : y.data() + 1;
          AdasumCombine(dtype, dots, x.data() + 1, y.data() + 1, out, elems);
          for (size_t i = 0; i < elems; ++i) {
            volatile double first = ca * ElementAsDouble(dtype, a.data() + 1, i);
            volatile double second = cb * ElementAsDouble(dtype, b.data() + 1, i);
            double expected = first + second;
            if (dtype != DType::kFloat64) expected = static_cast<float>(expected);
            char small[2];
            if (SizeOf(dtype) <= 2) {
              WriteSmall(dtype, static_cast<float>(expected), small);
              expected = ReadSmall(dtype, small);
            }
            EXPECT_EQ(ElementAsDouble(dtype, out, i), expected);
          }
        }
      });
    }
  }
}

TEST(AdasumMeetsItsTwoLimits) {
  const float a[4] = {1, 2, 0, 0}, b[4] = {0, 0, 3, 4}, zero[4] = {};
  float out[4];
  AdasumCombine(DType::kFloat32, Dots(DType::kFloat32, a, a, 4), a, a, out, 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], a[i]);  // parallel: the average
  AdasumCombine(DType::kFloat32, Dots(DType::kFloat32, a, b, 4), a, b, out, 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], a[i] + b[i]);  // orthogonal: the sum
  AdasumCombine(DType::kFloat32, Dots(DType::kFloat32, zero, b, 4), zero, b, out, 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], b[i]);  // no norm: coefficient 1
}

}  // namespace hvd::test::collective_kernels_adasum
