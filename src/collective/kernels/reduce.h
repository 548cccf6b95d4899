// Reduce and the streaming copy, generic over the instruction set; see vector.h for who includes this and why
// nothing here calls the standard library. All positions are byte offsets from the start of the arrays. Each step loads
// from every source before it stores to any destination, so a destination may be a source.
#pragma once

#include "collective/kernels/float8.h"
#include "collective/kernels/table.h"
#include "collective/kernels/vector.h"

namespace hvd::collective::kernels {
namespace {

constexpr size_t kAhead = 4096;

enum class Scaling { kNone, kPost, kBoth };

struct Operands {
  const void* const* srcs;
  int n_srcs;
  void* const* dsts;
  int n_dsts;
  size_t dst_base;  // dsts[k] holds the result of position dst_base
  double pre, post;
  bool streaming;  // then every Dst(k, begin) is aligned to a cache line

  HVD_INLINE const char* Src(int s, size_t at) const { return static_cast<const char*>(srcs[s]) + at; }
  HVD_INLINE char* Dst(int k, size_t at) const { return static_cast<char*>(dsts[k]) + (at - dst_base); }
};

using Kernel = void (*)(const Operands& operands, size_t begin, size_t end);

template <class Machine, class D, class Op, Scaling kScaling>
struct Combiner {
  using Wide = typename D::Wide;
  using Factor = Vec<typename D::Factor>;

  static HVD_INLINE Wide Load(const char* from, Factor pre) { return Source(LoadVec<uint8_t>(from), pre); }
  static HVD_INLINE Wide Source(Raw raw, Factor pre) {
    if constexpr (kScaling == Scaling::kBoth) return Times(D::Widen(raw), pre);
    return D::Widen(raw);
  }
  static HVD_INLINE Raw Result(Wide value, Factor post) {
    if constexpr (kScaling != Scaling::kNone) return D::Narrow(Times(value, post));
    return D::Narrow(value);
  }

  // The hardware prefetcher stops at a page's end: ask for the next page's lines ourselves, but never for memory behind
  // the sources, which another rank may be writing.
  static HVD_INLINE void Prefetch(const char* from, bool ahead) {
    if (!ahead) return;
    for (size_t line = 0; line < 4 * kWidth; line += kLine) __builtin_prefetch(from + kAhead + line);
  }

  // Four vectors at a time: the accumulators stay in registers, and the loop over the sources costs little.
  static HVD_INLINE void Four(const Operands& operands, size_t at, bool ahead, Factor pre, Factor post) {
    const char* from = operands.Src(0, at);
    Prefetch(from, ahead);
    Wide a = Load(from, pre), b = Load(from + kWidth, pre);
    Wide c = Load(from + 2 * kWidth, pre), d = Load(from + 3 * kWidth, pre);
    const int n_srcs = operands.n_srcs;
    for (int s = 1; s < n_srcs; ++s) {
      from = operands.Src(s, at);
      Prefetch(from, ahead);
      a = Apply<Op>(a, Load(from, pre));
      b = Apply<Op>(b, Load(from + kWidth, pre));
      c = Apply<Op>(c, Load(from + 2 * kWidth, pre));
      d = Apply<Op>(d, Load(from + 3 * kWidth, pre));
    }
    StoreFour(operands, at, Result(a, post), Result(b, post), Result(c, post), Result(d, post));
  }

  static HVD_INLINE void StoreFour(const Operands& operands, size_t at, Raw a, Raw b, Raw c, Raw d) {
    const int n_dsts = operands.n_dsts;
    for (int k = 0; k < n_dsts; ++k) {
      char* to = operands.Dst(k, at);
      if (operands.streaming) {
        Machine::StoreStreaming(to, a);
        Machine::StoreStreaming(to + kWidth, b);
        Machine::StoreStreaming(to + 2 * kWidth, c);
        Machine::StoreStreaming(to + 3 * kWidth, d);
      } else {
        StoreVec<uint8_t>(to, a);
        StoreVec<uint8_t>(to + kWidth, b);
        StoreVec<uint8_t>(to + 2 * kWidth, c);
        StoreVec<uint8_t>(to + 3 * kWidth, d);
      }
    }
  }

  static HVD_INLINE void One(const Operands& operands, size_t at, Factor pre, Factor post) {
    Wide a = Load(operands.Src(0, at), pre);
    for (int s = 1; s < operands.n_srcs; ++s) a = Apply<Op>(a, Load(operands.Src(s, at), pre));
    const Raw result = Result(a, post);
    for (int k = 0; k < operands.n_dsts; ++k) StoreVec<uint8_t>(operands.Dst(k, at), result);
  }

  static HVD_INLINE void Part(const Operands& operands, size_t at, size_t bytes, Factor pre, Factor post) {
    Wide a = Source(Machine::LoadPart(operands.Src(0, at), bytes), pre);
    for (int s = 1; s < operands.n_srcs; ++s)
      a = Apply<Op>(a, Source(Machine::LoadPart(operands.Src(s, at), bytes), pre));
    const Raw result = Result(a, post);
    for (int k = 0; k < operands.n_dsts; ++k) Machine::StorePart(operands.Dst(k, at), result, bytes);
  }

  static void Run(const Operands& operands, size_t begin, size_t end) {
    const Factor pre = Splat(static_cast<typename D::Factor>(operands.pre));
    const Factor post = Splat(static_cast<typename D::Factor>(operands.post));
    size_t at = begin;
    if constexpr (sizeof(Wide) <= sizeof(Pair)) {  // four vectors of 8-bit floats fit into no registers
      for (; at + 4 * kWidth <= end; at += 4 * kWidth) Four(operands, at, end - at >= kAhead + 4 * kWidth, pre, post);
    }
    for (; at + kWidth <= end; at += kWidth) One(operands, at, pre, post);
    if (at < end) Part(operands, at, end - at, pre, post);
  }
};

// Copies with streaming stores, without the fence.
template <class Machine>
void StreamUnfenced(char* to, const char* from, size_t bytes) {
  const size_t misaligned = reinterpret_cast<uintptr_t>(to) % kLine;
  size_t at = misaligned == 0 ? 0 : kLine - misaligned;
  if (at > bytes) at = bytes;
  __builtin_memcpy(to, from, at);
  for (; at + 4 * kWidth <= bytes; at += 4 * kWidth) {
    const Raw a = LoadVec<uint8_t>(from + at), b = LoadVec<uint8_t>(from + at + kWidth);
    const Raw c = LoadVec<uint8_t>(from + at + 2 * kWidth), d = LoadVec<uint8_t>(from + at + 3 * kWidth);
    Machine::StoreStreaming(to + at, a);
    Machine::StoreStreaming(to + at + kWidth, b);
    Machine::StoreStreaming(to + at + 2 * kWidth, c);
    Machine::StoreStreaming(to + at + 3 * kWidth, d);
  }
  __builtin_memcpy(to + at, from + at, bytes - at);
}

template <class Machine>
void Stream(void* to, const void* from, size_t bytes) {
  StreamUnfenced<Machine>(static_cast<char*>(to), static_cast<const char*>(from), bytes);
  Machine::Fence();
}

// Destinations that no common head can align: each block is computed into the nearest cache, then streamed to each of
// them.
template <class Machine>
__attribute__((noinline)) void StreamThroughScratch(Kernel kernel, const Operands& operands, size_t bytes) {
  constexpr size_t kBlock = 8192;
  alignas(kLine) char scratch[kBlock];
  void* const to = scratch;
  for (size_t begin = 0; begin < bytes; begin += kBlock) {
    const size_t end = bytes - begin < kBlock ? bytes : begin + kBlock;
    const Operands block = {operands.srcs, operands.n_srcs, &to, 1, begin, operands.pre, operands.post, false};
    kernel(block, begin, end);
    for (int k = 0; k < operands.n_dsts; ++k) StreamUnfenced<Machine>(operands.Dst(k, begin), scratch, end - begin);
  }
}

template <class Machine>
void RunStreaming(Kernel kernel, Operands operands, size_t bytes, size_t element) {
  const size_t misaligned = reinterpret_cast<uintptr_t>(operands.dsts[0]) % kLine;
  bool alike = misaligned % element == 0;
  for (int k = 1; k < operands.n_dsts; ++k)
    alike &= reinterpret_cast<uintptr_t>(operands.dsts[k]) % kLine == misaligned;
  if (alike) {
    const size_t gap = misaligned == 0 ? 0 : kLine - misaligned;
    const size_t head = gap < bytes ? gap : bytes;
    operands.streaming = false;
    if (head > 0) kernel(operands, 0, head);
    operands.streaming = true;
    kernel(operands, head, bytes);
  } else {
    StreamThroughScratch<Machine>(kernel, operands, bytes);
  }
  Machine::Fence();
}

template <class Machine, class D, class Op>
Kernel KernelOf(Scaling scaling) {
  if constexpr (static_cast<typename D::Factor>(0.5) != 0) {  // a floating-point type
    // Only sums (averages) are common enough to leave out a multiplication by 1.
    if (scaling == Scaling::kPost && __is_same(Op, SumOp)) return Combiner<Machine, D, Op, Scaling::kPost>::Run;
    if (scaling != Scaling::kNone) return Combiner<Machine, D, Op, Scaling::kBoth>::Run;
  }
  return Combiner<Machine, D, Op, Scaling::kNone>::Run;
}

template <class Machine, class D, class Wrapping>
Kernel KernelOf(ReduceOp op, Scaling scaling) {
  switch (op) {
    case ReduceOp::kMin:
      return KernelOf<Machine, D, MinOp>(scaling);
    case ReduceOp::kMax:
      return KernelOf<Machine, D, MaxOp>(scaling);
    case ReduceOp::kProduct:
      return KernelOf<Machine, Wrapping, ProductOp>(scaling);
    case ReduceOp::kAverage:
    case ReduceOp::kSum:
    case ReduceOp::kAdasum:
      break;  // no default: a new operation does not compile without its case
  }
  return KernelOf<Machine, Wrapping, SumOp>(scaling);
}

// Sums and products of signed integers are computed unsigned: the same bits, and wrapping is defined.
template <class Machine>
Kernel KernelOf(DType dtype, ReduceOp op, Scaling scaling) {
  switch (dtype) {
    case DType::kUint8:
      return KernelOf<Machine, Plain<uint8_t>, Plain<uint8_t>>(op, scaling);
    case DType::kInt8:
      return KernelOf<Machine, Plain<int8_t>, Plain<uint8_t>>(op, scaling);
    case DType::kUint16:
      return KernelOf<Machine, Plain<uint16_t>, Plain<uint16_t>>(op, scaling);
    case DType::kInt16:
      return KernelOf<Machine, Plain<int16_t>, Plain<uint16_t>>(op, scaling);
    case DType::kUint32:
      return KernelOf<Machine, Plain<uint32_t>, Plain<uint32_t>>(op, scaling);
    case DType::kInt32:
      return KernelOf<Machine, Plain<int32_t>, Plain<uint32_t>>(op, scaling);
    case DType::kUint64:
      return KernelOf<Machine, Plain<uint64_t>, Plain<uint64_t>>(op, scaling);
    case DType::kInt64:
      return KernelOf<Machine, Plain<int64_t>, Plain<uint64_t>>(op, scaling);
    case DType::kFloat16:
      return KernelOf<Machine, Half<Machine>, Half<Machine>>(op, scaling);
    case DType::kBfloat16:
      return KernelOf<Machine, Bfloat16, Bfloat16>(op, scaling);
    case DType::kFloat8E4m3fn:
      return KernelOf<Machine, Eighth<Float8E4m3>, Eighth<Float8E4m3>>(op, scaling);
    case DType::kFloat8E5m2:
      return KernelOf<Machine, Eighth<Float8E5m2>, Eighth<Float8E5m2>>(op, scaling);
    case DType::kFloat32:
      return KernelOf<Machine, Plain<float>, Plain<float>>(op, scaling);
    case DType::kFloat64:
      return KernelOf<Machine, Plain<double>, Plain<double>>(op, scaling);
    case DType::kBool:
      break;
  }
  const ReduceRow::Neutral neutral = kReduceRows[static_cast<int>(op)].neutral;
  const bool any = neutral == ReduceRow::kZero || neutral == ReduceRow::kLowest;  // false changes nothing
  return any ? KernelOf<Machine, Bool, MaxOp>(Scaling::kNone) : KernelOf<Machine, Bool, MinOp>(Scaling::kNone);
}

template <class Machine>
void ReduceWith(const ReduceArgs& args) {
  const Factors& factors = args.factors;
  const Scaling scaling = factors.pre != 1.0 ? Scaling::kBoth : factors.post != 1.0 ? Scaling::kPost : Scaling::kNone;
  const Kernel kernel = KernelOf<Machine>(args.dtype, args.op, scaling);
  const size_t element = SizeOf(args.dtype);
  const size_t bytes = args.elems * element;
  const bool scaled = IsFloat(args.dtype);
  const double pre = scaled ? WithoutPayload(factors.pre) : 1.0, post = scaled ? WithoutPayload(factors.post) : 1.0;
  const Operands operands = {args.srcs, args.n_srcs, args.dsts, args.n_dsts, 0, pre, post, false};
  // Below a few lines there is nothing to gain.
  if (args.store == StoreMode::kStreaming && bytes >= 4 * kLine)
    return RunStreaming<Machine>(kernel, operands, bytes, element);
  kernel(operands, 0, bytes);
}

}  // namespace
}  // namespace hvd::collective::kernels
