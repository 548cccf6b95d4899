// The entry points of kernels.h: argument cases that no instruction set changes, and the choice of the variant at run
// time.
#include "collective/kernels/kernels.h"

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
void FillWith(void* dst, size_t elems, T value) {
  char* to = static_cast<char*>(dst);
  for (size_t i = 0; i < elems; ++i) std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

template <class T>
T Identity(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ReduceOp::kMax:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case ReduceOp::kProduct:
      return T{1};
    default:
      return T{0};
  }
}

// Of a float whose bits are not a type of C++: those of 1 and of its largest value, an infinity if it has one.
template <class Bits>
Bits SmallFloatIdentity(ReduceOp op, Bits one, Bits largest) {
  constexpr int kSign = 1 << (8 * sizeof(Bits) - 1);
  switch (op) {
    case ReduceOp::kMin:
      return largest;
    case ReduceOp::kMax:
      return static_cast<Bits>(largest | kSign);
    case ReduceOp::kProduct:
      return one;
    default:
      return 0;
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
  switch (dtype) {
    case DType::kUint8:
      return FillWith(dst, elems, Identity<uint8_t>(op));
    case DType::kInt8:
      return FillWith(dst, elems, Identity<int8_t>(op));
    case DType::kUint16:
      return FillWith(dst, elems, Identity<uint16_t>(op));
    case DType::kInt16:
      return FillWith(dst, elems, Identity<int16_t>(op));
    case DType::kUint32:
      return FillWith(dst, elems, Identity<uint32_t>(op));
    case DType::kInt32:
      return FillWith(dst, elems, Identity<int32_t>(op));
    case DType::kUint64:
      return FillWith(dst, elems, Identity<uint64_t>(op));
    case DType::kInt64:
      return FillWith(dst, elems, Identity<int64_t>(op));
    case DType::kFloat16:
      return FillWith(dst, elems, SmallFloatIdentity<uint16_t>(op, 0x3c00, 0x7c00));
    case DType::kBfloat16:
      return FillWith(dst, elems, SmallFloatIdentity<uint16_t>(op, 0x3f80, 0x7f80));
    case DType::kFloat8E4m3fn:
      return FillWith(dst, elems, SmallFloatIdentity<uint8_t>(op, 0x38, 0x7e));
    case DType::kFloat8E5m2:
      return FillWith(dst, elems, SmallFloatIdentity<uint8_t>(op, 0x3c, 0x7c));
    case DType::kFloat32:
      return FillWith(dst, elems, Identity<float>(op));
    case DType::kFloat64:
      return FillWith(dst, elems, Identity<double>(op));
    case DType::kBool:
      return FillWith<uint8_t>(dst, elems, op == ReduceOp::kMin || op == ReduceOp::kProduct);
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
