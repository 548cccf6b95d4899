// Tests of collective/kernels/kernels.h but for Adasum: every variant this machine supports against a plain reference,
// bit for bit, over all dtypes, operations, factors, lengths, alignments and store modes; and the rules of the header
// with worked examples.
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/average.h"
#include "base/half.h"
#include "collective/kernels/kernels.h"
#include "native/collective/kernels/reference.h"
#include "native/harness/harness.h"

namespace hvd::test::collective_kernels_reduce {

namespace {

using namespace hvd::collective::kernels;
using hvd::AverageFactor;
using hvd::DType;
using hvd::ReduceOp;
using hvd::collective::kernels::StoreMode;

struct Shape {
  size_t elems;
  int n_srcs, n_dsts;
  bool in_place;  // the first destination is the last source
  StoreMode store;
};

// One reduction on random arrays at random alignments against the reference.
bool ReduceMatches(DType dtype, ReduceOp op, Factors factors, const Shape& shape, std::mt19937_64& random) {
  constexpr size_t kOffsets[] = {0, 0, 16, 8, 32, 4, 1, 3, 63};
  const size_t common = kOffsets[random() % std::size(kOffsets)];
  const bool alike = random() % 2 == 0;
  const auto offset = [&] { return alike ? common : kOffsets[random() % std::size(kOffsets)]; };
  std::vector<Array> arrays;
  std::vector<const void*> srcs;
  std::vector<void*> dsts;
  for (int s = 0; s < shape.n_srcs; ++s) arrays.emplace_back(dtype, shape.elems, offset(), random);
  for (int d = shape.in_place; d < shape.n_dsts; ++d) arrays.emplace_back(dtype, shape.elems, offset(), random);
  for (int s = 0; s < shape.n_srcs; ++s) srcs.push_back(arrays[s].data());
  for (int d = 0; d < shape.n_dsts; ++d) dsts.push_back(arrays[shape.n_srcs - shape.in_place + d].data());

  const ReduceArgs args = {.dtype = dtype,
                           .op = op,
                           .factors = factors,
                           .srcs = srcs.data(),
                           .n_srcs = shape.n_srcs,
                           .dsts = dsts.data(),
                           .n_dsts = shape.n_dsts,
                           .elems = shape.elems,
                           .store = shape.store};
  std::vector<char> expected(shape.elems * SizeOf(dtype) + 8);
  for (size_t i = 0; i < shape.elems; ++i) Reference(args, i, expected.data() + i * SizeOf(dtype));
  Reduce(args);
  bool same = true;
  for (int d = 0; d < shape.n_dsts; ++d) {
    for (size_t at = 0; at < shape.elems * SizeOf(dtype); at += SizeOf(dtype)) {
      same &= SameValue(dtype, expected.data() + at, static_cast<char*>(dsts[d]) + at);
    }
  }
  for (const Array& array : arrays) same &= array.GuardsHold();
  return same;
}

void TestReduceLengths(const std::vector<size_t>& lengths) {
  constexpr Factors kFactors[] = {{1, 1}, {1, 1.0 / 3}, {0.7, 1}, {-1.5, 0.3}, {3e9, 1e-3}};
  ForEachVariant([&](const char* variant) {
    std::mt19937_64 random(7);  // the same arrays for every variant
    for (DType dtype : kDTypes) {
      for (ReduceOp op : ElementwiseOps()) {
        for (size_t elems : lengths) {
          const Factors factors = kFactors[random() % 2 == 0 ? 0 : random() % std::size(kFactors)];
          const Shape shape = {elems, static_cast<int>(random() % 3 == 0 ? 1 + random() % 8 : 2),
                               static_cast<int>(1 + random() % 3), random() % 3 == 0,
                               random() % 2 == 0 ? StoreMode::kStreaming : StoreMode::kOrdinary};
          if (!ReduceMatches(dtype, op, factors, shape, random)) {
            hvd::test::Fail(__FILE__, __LINE__, Describe(variant, dtype, op, elems));
          }
        }
      }
    }
  });
}

template <class T>
void ExpectNan(DType dtype, T one, double nan) {
  const std::vector<T> ones(40, one);
  std::vector<std::vector<T>> results = {Reduced<T>(dtype, ReduceOp::kSum, {1, nan}, {ones, ones}),
                                         Reduced<T>(dtype, ReduceOp::kMax, {nan, 1}, {ones, ones}), ones};
  AdasumCombine(dtype, {nan, 1, 1}, ones.data(), ones.data(), results[2].data(), ones.size());
  for (const auto& result : results) {
    for (const T& value : result) EXPECT(IsNan(dtype, reinterpret_cast<const char*>(&value)));
  }
}

}  // namespace

TEST(ReduceMatchesReferenceAtEveryShortLength) {
  std::vector<size_t> lengths;
  for (size_t n = 0; n <= 130; ++n) lengths.push_back(n);
  TestReduceLengths(lengths);
}

TEST(ReduceMatchesReferenceAtBlockBorders) {  // 8 KiB scratch blocks, 4 KiB integer blocks, the prefetch distance
  TestReduceLengths({255, 256, 257, 511, 1023, 1024, 1025, 2047, 2049, 4096, 4111, 9001});
}

TEST(ReduceStaysInsideItsArrays) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* pages[3];
  for (char*& p : pages) {  // the array ends where an unreadable page begins
    p = static_cast<char*>(mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT(p != MAP_FAILED);
    EXPECT_EQ(mprotect(p + 2 * page, page, PROT_NONE), 0);
    EXPECT_EQ(mprotect(p, page, PROT_NONE), 0);
  }
  ForEachVariant([&](const char*) {
    for (DType dtype : kDTypes) {
      for (size_t elems = 1; elems <= 140; ++elems) {
        const size_t bytes = elems * SizeOf(dtype);
        for (bool at_end : {true, false}) {
          const size_t at = at_end ? 2 * page - bytes : page;
          const void* const srcs[] = {pages[0] + at, pages[1] + at};
          void* const dst = pages[2] + at;
          Reduce({.dtype = dtype,
                  .op = ReduceOp::kSum,
                  .factors = {},
                  .srcs = srcs,
                  .n_srcs = 2,
                  .dsts = &dst,
                  .n_dsts = 1,
                  .elems = elems,
                  .store = at_end ? StoreMode::kOrdinary : StoreMode::kStreaming});
          EXPECT_EQ(*static_cast<char*>(dst), 0);
          if (!IsFloat(dtype)) continue;
          EXPECT_EQ(Dots(dtype, srcs[0], srcs[1], elems).ab, 0.0);
          AdasumCombine(dtype, {}, srcs[0], srcs[1], dst, elems);
        }
      }
    }
  });
  for (char* p : pages) munmap(p, 3 * page);
}

TEST(ReduceRoundsSixteenBitFloatsOnce) {
  ForEachVariant([](const char*) {
    // 2048 + 1 is not a float16; rounding after each addition would lose both ones.
    EXPECT_EQ(Reduced<uint16_t>(DType::kFloat16, ReduceOp::kSum, {}, {{0x6800}, {0x3c00}, {0x3c00}})[0],
              hvd::HalfFromFloat(2050));
    EXPECT_EQ(Reduced<uint16_t>(DType::kBfloat16, ReduceOp::kSum, {}, {{0x4380}, {0x3f80}, {0x3f80}})[0],
              hvd::Bfloat16FromFloat(258));
    // 60000 + 60000 overflows a float16, their mean does not.
    const uint16_t large = hvd::HalfFromFloat(60000);
    EXPECT_EQ(Reduced<uint16_t>(DType::kFloat16, ReduceOp::kSum, {1, 0.5}, {{large}, {large}})[0], large);
  });
}

TEST(ReduceRoundsEightBitFloatsOnce) {
  constexpr DType kE4m3 = DType::kFloat8E4m3fn, kE5m2 = DType::kFloat8E5m2;
  ForEachVariant([](const char*) {
    // 16 + 1 has no code; rounding after each addition would lose both ones.
    EXPECT_EQ(Reduced<uint8_t>(kE4m3, ReduceOp::kSum, {}, {{0x58}, {0x38}, {0x38}})[0], 0x59);  // 18
    EXPECT_EQ(Reduced<uint8_t>(kE5m2, ReduceOp::kSum, {}, {{0x48}, {0x3c}, {0x3c}})[0], 0x49);  // 8 + 1 + 1 = 10
    // The sum of the two largest is too large, their mean is not.
    EXPECT_EQ(Reduced<uint8_t>(kE4m3, ReduceOp::kSum, {1, 0.5}, {{0x7e}, {0x7e}})[0], 0x7e);
    EXPECT_EQ(Reduced<uint8_t>(kE5m2, ReduceOp::kSum, {1, 0.5}, {{0x7b}, {0x7b}})[0], 0x7b);
    EXPECT_EQ(Reduced<uint8_t>(kE4m3, ReduceOp::kSum, {}, {{0x7e}, {0x7e}})[0], 0x7f);  // NaN: it has no infinity
    EXPECT_EQ(Reduced<uint8_t>(kE5m2, ReduceOp::kSum, {}, {{0xfb}, {0xfb}})[0], 0xfc);
  });
}

TEST(ReduceKeepsIntegerRules) {
  ForEachVariant([](const char*) {
    EXPECT_EQ(Reduced<int8_t>(DType::kInt8, ReduceOp::kSum, {}, {{127}, {1}})[0], -128);
    EXPECT_EQ(Reduced<int32_t>(DType::kInt32, ReduceOp::kProduct, {}, {{1 << 20}, {1 << 12}})[0], 0);
    EXPECT_EQ(Reduced<uint16_t>(DType::kUint16, ReduceOp::kProduct, {}, {{65535}, {65535}})[0], 1);
    EXPECT_EQ(Reduced<int64_t>(DType::kInt64, ReduceOp::kSum, {}, {{INT64_MAX}, {1}})[0], INT64_MIN);
    EXPECT_EQ(Reduced<uint64_t>(DType::kUint64, ReduceOp::kMax, {}, {{UINT64_MAX}, {1}})[0], UINT64_MAX);
    EXPECT_EQ(Reduced<int64_t>(DType::kInt64, ReduceOp::kMin, {}, {{-1}, {1}})[0], -1);
    // Average truncates toward zero, both sides of it.
    EXPECT_EQ(Reduced<int32_t>(DType::kInt32, ReduceOp::kSum, {1, 0.5}, {{-3}, {-4}})[0], -3);
    EXPECT_EQ(Reduced<int32_t>(DType::kInt32, ReduceOp::kSum, {1, 0.5}, {{3}, {4}})[0], 3);
    EXPECT_EQ(Reduced<int32_t>(DType::kInt32, ReduceOp::kSum, {0.5, 1}, {{3}, {3}})[0], 2);  // each source is truncated
    EXPECT_EQ(Reduced<uint8_t>(DType::kUint8, ReduceOp::kMax, {2, 1}, {{200}, {3}})[0], 255);
    EXPECT_EQ(Reduced<uint8_t>(DType::kUint8, ReduceOp::kMax, {-2, 1}, {{200}, {3}})[0], 0);
    EXPECT_EQ(Reduced<int64_t>(DType::kInt64, ReduceOp::kSum, {1, 4}, {{INT64_MAX / 2}, {1}})[0], INT64_MAX);
    EXPECT_EQ(Reduced<int64_t>(DType::kInt64, ReduceOp::kSum, {1, -4}, {{INT64_MAX / 2}, {1}})[0], INT64_MIN);
    EXPECT_EQ(Reduced<uint64_t>(DType::kUint64, ReduceOp::kSum, {1, 1.5}, {{UINT64_MAX}})[0], UINT64_MAX);
    EXPECT_EQ(Reduced<int32_t>(DType::kInt32, ReduceOp::kSum, {1, NAN}, {{5}, {6}})[0], 0);
  });
}

// Exact beyond what a double holds, and where a factor that is rounded up would reach the next integer.
TEST(ReduceAveragesWideIntegersExactly) {
  ForEachVariant([](const char*) {
    std::mt19937_64 random(7);
    for (int n : {2, 3, 7, 64}) {
      const Factors average = {1, AverageFactor(DType::kInt64, n)};
      for (int i = 0; i < 200; ++i) {
        const int64_t sum = static_cast<int64_t>(random()) >> random() % 20;
        const auto magnitude = static_cast<uint64_t>(sum);
        EXPECT_EQ(Reduced<int64_t>(DType::kInt64, ReduceOp::kSum, average, {{sum - 1}, {1}})[0], sum / n);
        EXPECT_EQ(Reduced<uint64_t>(DType::kUint64, ReduceOp::kSum, average, {{magnitude - 1}, {1}})[0], magnitude / n);
        const int64_t below = sum / n * n - 1;
        EXPECT_EQ(Reduced<int64_t>(DType::kInt64, ReduceOp::kSum, average, {{below}, {0}})[0], below / n);
      }
    }
  });
}

TEST(ReduceTreatsBoolAsTruth) {
  ForEachVariant([](const char*) {
    const std::vector<uint8_t> a = {0, 1, 0, 2, 255}, b = {0, 0, 1, 1, 4};
    const std::vector<uint8_t> either = {0, 1, 1, 1, 1}, both = {0, 0, 0, 1, 1};
    const Factors ignored = {1e30, -7};
    EXPECT(Reduced<uint8_t>(DType::kBool, ReduceOp::kSum, ignored, {a, b}) == either);
    EXPECT(Reduced<uint8_t>(DType::kBool, ReduceOp::kMax, {}, {a, b}) == either);
    EXPECT(Reduced<uint8_t>(DType::kBool, ReduceOp::kMin, {}, {a, b}) == both);
    EXPECT(Reduced<uint8_t>(DType::kBool, ReduceOp::kProduct, ignored, {a, b}) == both);
  });
}

// A NaN whose payload is all ones would carry into the sign of a bfloat16 when rounded.
TEST(NanFactorsGiveNan) {
  const double nan = std::bit_cast<double>(0x7fffffffffffffff);
  ForEachVariant([&](const char*) {
    ExpectNan<uint16_t>(DType::kFloat16, 0x3c00, nan);
    ExpectNan<uint16_t>(DType::kBfloat16, 0x3f80, nan);
    ExpectNan<uint8_t>(DType::kFloat8E4m3fn, 0x38, nan);
    ExpectNan<uint8_t>(DType::kFloat8E5m2, 0x3c, nan);
  });
}

TEST(MinAndMaxKeepNan) {
  ForEachVariant([](const char*) {
    for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      for (DType dtype : {DType::kFloat8E4m3fn, DType::kFloat8E5m2}) {
        EXPECT(Reduced<uint8_t>(dtype, op, {}, {{0x38, 0x7f}, {0x7f, 0x38}}) == (std::vector<uint8_t>{0x7f, 0x7f}));
      }
      for (int where = 0; where < 3; ++where) {
        std::vector<std::vector<float>> sources(3, std::vector<float>(37, 1.0f));
        sources[where][20] = NAN;
        const auto result = Reduced<float>(DType::kFloat32, op, {}, sources);
        for (size_t i = 0; i < result.size(); ++i) EXPECT_EQ(std::isnan(result[i]), i == 20);
      }
    }
  });
}

// 0.1*s0 + 0.1*s1 fused would differ in the last bit for some of these.
TEST(FactorsAreNotFused) {
  std::mt19937_64 random(3);
  std::vector<double> a(1000), b(1000);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<double>(random() >> 11);
    b[i] = static_cast<double>(random() >> 11);
  }
  bool fusing_would_show = false;
  for (size_t i = 0; i < a.size(); ++i) {
    volatile double first = 0.1 * a[i], second = 0.1 * b[i];
    fusing_would_show |= std::fma(0.1, b[i], first) != first + second;
  }
  EXPECT(fusing_would_show);
  ForEachVariant([&](const char*) {
    const auto result = Reduced<double>(DType::kFloat64, ReduceOp::kSum, {0.1, 1}, {a, b});
    for (size_t i = 0; i < a.size(); ++i) {
      volatile double first = 0.1 * a[i], second = 0.1 * b[i];
      EXPECT_EQ(result[i], first + second);
    }
  });
}

TEST(ScaleFollowsTheFactorRules) {
  ForEachVariant([](const char*) {
    float floats[5] = {1, 2, 3, 4, 5};
    Scale(DType::kFloat32, floats, 5, 0.1);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(floats[i], static_cast<float>(i + 1) * 0.1f);
    int16_t integers[3] = {-7, 7, 30000};
    Scale(DType::kInt16, integers, 3, 1.5);
    EXPECT_EQ(integers[0], -10);
    EXPECT_EQ(integers[1], 10);
    EXPECT_EQ(integers[2], 32767);
    uint8_t truth[2] = {0, 1};
    Scale(DType::kBool, truth, 2, 0.0);
    EXPECT_EQ(truth[1], 1);
    Scale(DType::kFloat32, nullptr, 0, 2.0);
  });
}

TEST(FillIdentityIsNeutral) {
  for (DType dtype : kDTypes) {
    for (ReduceOp op : ElementwiseOps()) {
      std::mt19937_64 random(11);
      Array values(dtype, 67, 1, random), identity(dtype, 67, 3, random);
      std::vector<char> result(67 * 8);
      FillIdentity(dtype, op, identity.data(), 67);
      EXPECT(identity.GuardsHold());
      const void* const srcs[] = {identity.data(), values.data()};
      void* const dst = result.data();
      Reduce(
          {.dtype = dtype, .op = op, .factors = {}, .srcs = srcs, .n_srcs = 2, .dsts = &dst, .n_dsts = 1, .elems = 67});
      for (size_t at = 0; at < 67 * SizeOf(dtype); at += SizeOf(dtype)) {
        const char* value = values.data() + at;
        bool same = SameValue(dtype, value, result.data() + at);
        if (dtype == DType::kBool) same = (*value != 0) == result[at];
        if (op == ReduceOp::kSum && dtype == DType::kFloat32 && ReadAs<float>(value) == 0) same = true;  // 0 + -0 is 0
        if (op == ReduceOp::kSum && dtype == DType::kFloat64 && ReadAs<double>(value) == 0) same = true;
        if (op == ReduceOp::kSum && SizeOf(dtype) == 2 && ReadAs<uint16_t>(value) == 0x8000) same = true;
        if (op == ReduceOp::kSum && IsFloat8(dtype) && ReadAs<uint8_t>(value) == 0x80) same = true;
        if (!same) hvd::test::Fail(__FILE__, __LINE__, Describe("identity", dtype, op, at));
      }
    }
  }
  double least = 0;
  FillIdentity(DType::kFloat64, ReduceOp::kMax, &least, 1);
  EXPECT_EQ(least, -INFINITY);
  int32_t most = 0;
  FillIdentity(DType::kInt32, ReduceOp::kMin, &most, 1);
  EXPECT_EQ(most, INT32_MAX);
}

TEST(CopyMovesExactlyItsBytes) {
  std::mt19937_64 random(5);
  ForEachVariant([&](const char*) {
    for (StoreMode store : {StoreMode::kOrdinary, StoreMode::kStreaming}) {
      for (size_t bytes : {0, 1, 7, 63, 64, 65, 255, 256, 257, 300, 511, 512, 640, 1000, 4096, 70001}) {
        Array from(DType::kUint8, bytes, random() % 64, random), to(DType::kUint8, bytes, random() % 64, random);
        Copy(to.data(), from.data(), bytes, store);
        EXPECT_EQ(std::memcmp(to.data(), from.data(), bytes), 0);
        EXPECT(to.GuardsHold());
        Copy(to.data(), to.data(), bytes, store);
        EXPECT_EQ(std::memcmp(to.data(), from.data(), bytes), 0);
      }
    }
  });
}

TEST(SetSimdRefusesWhatTheMachineLacks) {
  const std::string own = SimdName();
  EXPECT(!SetSimd("altivec"));
#if defined(__x86_64__)
  EXPECT(!SetSimd("neon"));
#else
  EXPECT(!SetSimd("avx2"));
#endif
  EXPECT_EQ(own, SimdName());
  EXPECT(SetSimd("scalar"));
  EXPECT(SetSimd(own.c_str()));
}

}  // namespace hvd::test::collective_kernels_reduce
