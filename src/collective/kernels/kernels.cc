// The entry points of kernels.h: argument cases that no instruction set changes, and the choice of the variant at run
// time.
#include "collective/kernels/kernels.h"

#include <array>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "collective/kernels/processor.h"
#include "collective/kernels/table.h"

namespace hvd::collective::kernels {
namespace {

const KernelTable* Best() {
#if defined(__x86_64__)
  // VBMI2 marks the generations (Ice Lake, Zen 4 and later) whose clock does not sink under 512-bit arithmetic, which
  // would slow down the training threads beside us.
  const Processor processor = ThisProcessor();
  if (processor.avx512_vbmi2) return &kAvx512Kernels;
  if (processor.avx2_f16c) return &kAvx2Kernels;
  return &kScalarKernels;
#elif defined(__aarch64__)
  return &kNeonKernels;
#else
  return &kScalarKernels;
#endif
}

std::atomic<const KernelTable*> chosen{nullptr};

const KernelTable& Table() {
  const KernelTable* table = chosen.load(std::memory_order_relaxed);
  if (table == nullptr) {
    table = Best();
    chosen.store(table, std::memory_order_relaxed);  // every thread would store the same
  }
  return *table;
}

template <class T>
void FillWith(ReduceRow::Neutral which, T one, T largest, T lowest, void* dst, size_t elems) {
  const T value = std::array{T{0}, one, largest, lowest}[which];
  char* to = static_cast<char*>(dst);
  for (size_t i = 0; i < elems; ++i) std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

template <class T>
void FillPlain(ReduceRow::Neutral which, void* dst, size_t elems) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity) {
    FillWith<T>(which, 1, Limits::infinity(), -Limits::infinity(), dst, elems);
  } else {
    FillWith<T>(which, 1, Limits::max(), Limits::lowest(), dst, elems);
  }
}

}  // namespace

void Reduce(const ReduceArgs& args) {
  if (args.elems == 0) return;
  const bool scaled = args.factors.pre != 1.0 || args.factors.post != 1.0;
  if (scaled && !IsFloat(args.dtype) && args.dtype != DType::kBool) return ReduceScaledIntegers(Table(), args);
  Table().reduce(args);
}

void Copy(void* dst, const void* src, size_t bytes, StoreMode store) {
  if (dst == src || bytes == 0) return;
  if (store == StoreMode::kStreaming && bytes >= 256) return Table().stream(dst, src, bytes);
  std::memcpy(dst, src, bytes);
}

void Scale(DType dtype, void* data, size_t elems, double factor) {
  if (factor == 1.0) return;
  const void* const src = data;
  void* const dst = data;
  Reduce({.dtype = dtype,
          .op = ReduceOp::kSum,
          .factors = {1.0, factor},
          .srcs = &src,
          .n_srcs = 1,
          .dsts = &dst,
          .n_dsts = 1,
          .elems = elems});
}

void FillIdentity(DType dtype, ReduceOp op, void* dst, size_t elems) {
  const ReduceRow::Neutral which = RowOf(op).neutral;
  switch (dtype) {
    case DType::kUint8:
      return FillPlain<uint8_t>(which, dst, elems);
    case DType::kInt8:
      return FillPlain<int8_t>(which, dst, elems);
    case DType::kUint16:
      return FillPlain<uint16_t>(which, dst, elems);
    case DType::kInt16:
      return FillPlain<int16_t>(which, dst, elems);
    case DType::kUint32:
      return FillPlain<uint32_t>(which, dst, elems);
    case DType::kInt32:
      return FillPlain<int32_t>(which, dst, elems);
    case DType::kUint64:
      return FillPlain<uint64_t>(which, dst, elems);
    case DType::kInt64:
      return FillPlain<int64_t>(which, dst, elems);
    // Their bits: no types of C++.
    case DType::kFloat16:
      return FillWith<uint16_t>(which, 0x3c00, 0x7c00, 0xfc00, dst, elems);
    case DType::kBfloat16:
      return FillWith<uint16_t>(which, 0x3f80, 0x7f80, 0xff80, dst, elems);
    case DType::kFloat8E4m3fn:
      return FillWith<uint8_t>(which, 0x38, 0x7e, 0xfe, dst, elems);
    case DType::kFloat8E5m2:
      return FillWith<uint8_t>(which, 0x3c, 0x7c, 0xfc, dst, elems);
    case DType::kFloat32:
      return FillPlain<float>(which, dst, elems);
    case DType::kFloat64:
      return FillPlain<double>(which, dst, elems);
    case DType::kBool:
      return FillWith<uint8_t>(which, 1, 1, 0, dst, elems);
  }
}

AdasumDots Dots(DType dtype, const void* a, const void* b, size_t elems) { return Table().dots(dtype, a, b, elems); }

void AdasumCombine(DType dtype, const AdasumDots& dots, const void* a, const void* b, void* out, size_t elems) {
  static const double kTiny = std::sqrt(DBL_MIN);
  const double a_coefficient = dots.aa < kTiny ? 1.0 : 1.0 - dots.ab / (2.0 * dots.aa);
  const double b_coefficient = dots.bb < kTiny ? 1.0 : 1.0 - dots.ab / (2.0 * dots.bb);
  Table().combine({dtype, a_coefficient, b_coefficient, a, b, out, elems});
}

const char* SimdName() { return Table().name; }

const KernelTable* UseKernels(const KernelTable* table) {
  const KernelTable* const before = &Table();
  chosen.store(table, std::memory_order_relaxed);
  return before;
}

bool SetSimd(const char* name) {
  const KernelTable* table = nullptr;
  if (std::strcmp(name, "scalar") == 0) table = &kScalarKernels;
#if defined(__x86_64__)
  if (std::strcmp(name, "avx2") == 0 && ThisProcessor().avx2_f16c) table = &kAvx2Kernels;
  if (std::strcmp(name, "avx512") == 0 && ThisProcessor().avx512) table = &kAvx512Kernels;
#elif defined(__aarch64__)
  if (std::strcmp(name, "neon") == 0) table = &kNeonKernels;
#endif
  if (table == nullptr) return false;
  chosen.store(table, std::memory_order_relaxed);
  return true;
}

}  // namespace hvd::collective::kernels
