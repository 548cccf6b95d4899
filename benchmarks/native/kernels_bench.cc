// Measures the kernels beside memcpy in the same run: `kernels_bench [KiB per array ...]` prints, per variant, dtype
// and store mode, the memory traffic in GB/s (bytes read plus bytes written, median of repeated passes) and its ratio
// to memcpy's. Only the ratios carry over to another day. One thread; the arrays are touched before.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "collective/kernels/kernels.h"

namespace {

using hvd::DType;
using hvd::ReduceOp;
namespace kernels = hvd::collective::kernels;
using kernels::StoreMode;
using Clock = std::chrono::steady_clock;

constexpr int kArrays = 8;

struct Free {
  void operator()(char* p) const { std::free(p); }
};
struct Arrays {
  explicit Arrays(size_t bytes) : size(bytes) {
    for (auto& array : memory) {
      array.reset(static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
      std::memset(array.get(), 0, bytes);
    }
  }
  size_t size;
  std::unique_ptr<char, Free> memory[kArrays];
};

// Median seconds of one pass. Short passes are timed in rows of at least 100 us.
double Seconds(const std::function<void()>& pass) {
  pass();
  int row = 1;
  std::vector<double> samples;
  const auto begin = Clock::now();
  while (samples.size() < 7 || Clock::now() - begin < std::chrono::milliseconds(60)) {
    const auto start = Clock::now();
    for (int i = 0; i < row; ++i) pass();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds < 1e-4 && row < 1 << 20) {
      row *= 2;
      samples.clear();
    } else {
      samples.push_back(seconds / row);
    }
  }
  std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
  return samples[samples.size() / 2];
}

struct Case {
  const char* label;
  DType dtype;
  ReduceOp op;
  int n_srcs, n_dsts;
  StoreMode store;
  double post;
};

constexpr Case kCases[] = {
    {"f32  sum 2->1         ", DType::kFloat32, ReduceOp::kSum, 2, 1, StoreMode::kOrdinary, 1},
    {"f32  sum 2->1 stream  ", DType::kFloat32, ReduceOp::kSum, 2, 1, StoreMode::kStreaming, 1},
    {"f32  sum 2->2         ", DType::kFloat32, ReduceOp::kSum, 2, 2, StoreMode::kOrdinary, 1},
    {"f32  sum 2->2 stream  ", DType::kFloat32, ReduceOp::kSum, 2, 2, StoreMode::kStreaming, 1},
    {"f32  avg 2->1 stream  ", DType::kFloat32, ReduceOp::kSum, 2, 1, StoreMode::kStreaming, 0.5},
    {"f32  sum 4->1         ", DType::kFloat32, ReduceOp::kSum, 4, 1, StoreMode::kOrdinary, 1},
    {"f32  sum 7->1 stream  ", DType::kFloat32, ReduceOp::kSum, 7, 1, StoreMode::kStreaming, 1},
    {"f32  max 2->1         ", DType::kFloat32, ReduceOp::kMax, 2, 1, StoreMode::kOrdinary, 1},
    {"f64  sum 2->1         ", DType::kFloat64, ReduceOp::kSum, 2, 1, StoreMode::kOrdinary, 1},
    {"bf16 sum 2->1         ", DType::kBfloat16, ReduceOp::kSum, 2, 1, StoreMode::kOrdinary, 1},
    {"bf16 avg 2->1 stream  ", DType::kBfloat16, ReduceOp::kSum, 2, 1, StoreMode::kStreaming, 0.5},
    {"e4m3 sum 2->1         ", DType::kFloat8E4m3fn, ReduceOp::kSum, 2, 1, StoreMode::kOrdinary, 1},
    {"e4m3 avg 2->1 stream  ", DType::kFloat8E4m3fn, ReduceOp::kSum, 2, 1, StoreMode::kStreaming, 0.5},
    {"e5m2 sum 2->1         ", DType::kFloat8E5m2, ReduceOp::kSum, 2, 1, StoreMode::kOrdinary, 1},
    {"f16  sum 2->1         ", DType::kFloat16, ReduceOp::kSum, 2, 1, StoreMode::kOrdinary, 1},
    {"i32  sum 2->1         ", DType::kInt32, ReduceOp::kSum, 2, 1, StoreMode::kOrdinary, 1},
    {"i64  sum 2->1         ", DType::kInt64, ReduceOp::kSum, 2, 1, StoreMode::kOrdinary, 1},
    {"i64  avg 2->1         ", DType::kInt64, ReduceOp::kSum, 2, 1, StoreMode::kOrdinary, 0.5},
    {"u8   min 2->1         ", DType::kUint8, ReduceOp::kMin, 2, 1, StoreMode::kOrdinary, 1},
};

double Print(const char* variant, const char* label, double bytes, double seconds, double memcpy_rate) {
  const double rate = bytes / seconds / 1e9;
  std::printf("%-7s %s %8.2f GB/s  %5.2f of memcpy\n", variant, label, rate,
              memcpy_rate > 0 ? rate / memcpy_rate : 1.0);
  return rate;
}

void MeasureVariant(const char* variant, const Arrays& arrays, double memcpy_rate) {
  const size_t bytes = arrays.size;
  char* const a = arrays.memory[0].get();
  char* const b = arrays.memory[1].get();
  Print(variant, "copy stream           ", 2.0 * bytes,
        Seconds([&] { kernels::Copy(b, a, bytes, StoreMode::kStreaming); }), memcpy_rate);
  for (const Case& c : kCases) {
    const void* srcs[kArrays];
    void* dsts[kArrays];
    for (int s = 0; s < c.n_srcs; ++s) srcs[s] = arrays.memory[s].get();
    for (int d = 0; d < c.n_dsts; ++d) dsts[d] = arrays.memory[kArrays - 1 - d].get();
    const kernels::ReduceArgs args = {.dtype = c.dtype,
                                      .op = c.op,
                                      .factors = {1.0, c.post},
                                      .srcs = srcs,
                                      .n_srcs = c.n_srcs,
                                      .dsts = dsts,
                                      .n_dsts = c.n_dsts,
                                      .elems = bytes / SizeOf(c.dtype),
                                      .store = c.store};
    Print(variant, c.label, static_cast<double>(bytes) * (c.n_srcs + c.n_dsts), Seconds([&] { kernels::Reduce(args); }),
          memcpy_rate);
  }
  const size_t elems = bytes / 4;
  kernels::AdasumDots dots;
  Print(variant, "f32  dots             ", 2.0 * bytes,
        Seconds([&] { dots = kernels::Dots(DType::kFloat32, a, b, elems); }), memcpy_rate);
  Print(variant, "bf16 dots             ", 2.0 * bytes,
        Seconds([&] { dots = kernels::Dots(DType::kBfloat16, a, b, 2 * elems); }), memcpy_rate);
  Print(variant, "f32  adasum combine   ", 3.0 * bytes,
        Seconds([&] { kernels::AdasumCombine(DType::kFloat32, dots, a, b, b, elems); }), memcpy_rate);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<size_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10) << 10);
  if (sizes.empty()) sizes = {4 << 10, 256 << 10, 64 << 20};
  std::printf("this machine runs: %s\n", kernels::SimdName());
  for (const size_t bytes : sizes) {
    const Arrays arrays(bytes);
    std::printf("--- %zu KiB per array\n", bytes >> 10);
    const double memcpy_rate =
        Print("libc", "memcpy                ", 2.0 * bytes,
              Seconds([&] { std::memcpy(arrays.memory[1].get(), arrays.memory[0].get(), bytes); }), 0);
    for (const char* variant : {"avx512", "avx2", "neon", "scalar"}) {
      if (kernels::SetSimd(variant)) MeasureVariant(variant, arrays, memcpy_rate);
    }
  }
  return 0;
}
