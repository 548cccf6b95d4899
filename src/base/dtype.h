// The element types of the C interface: sizes, names, kinds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "horovod/horovod.h"

namespace hvd {

enum class DType : int32_t {
  kUint8 = HVD_UINT8,
  kInt8 = HVD_INT8,
  kUint16 = HVD_UINT16,
  kInt16 = HVD_INT16,
  kInt32 = HVD_INT32,
  kInt64 = HVD_INT64,
  kFloat16 = HVD_FLOAT16,
  kFloat32 = HVD_FLOAT32,
  kFloat64 = HVD_FLOAT64,
  kBool = HVD_BOOL,
  kBfloat16 = HVD_BFLOAT16,
  kUint32 = HVD_UINT32,
  kUint64 = HVD_UINT64,
  kFloat8E4m3fn = HVD_FLOAT8_E4M3FN,
  kFloat8E5m2 = HVD_FLOAT8_E5M2,
};
inline constexpr int kDTypeCount = 15;

enum class OpType : int32_t {
  kAllreduce = HVD_ALLREDUCE,
  kAllgather = HVD_ALLGATHER,
  kBroadcast = HVD_BROADCAST,
  kAlltoall = HVD_ALLTOALL,
  kReducescatter = HVD_REDUCESCATTER,
  kBarrier = HVD_BARRIER,
  kJoin = HVD_JOIN,
  kSend = HVD_SEND,
  kRecv = HVD_RECV,
};

enum class ReduceOp : int32_t {
  kAverage = HVD_AVERAGE,
  kSum = HVD_SUM,
  kAdasum = HVD_ADASUM,
  kMin = HVD_MIN,
  kMax = HVD_MAX,
  kProduct = HVD_PRODUCT,
};

// Between two members of a process set.
inline constexpr bool IsPointToPoint(OpType t) { return t == OpType::kSend || t == OpType::kRecv; }

inline constexpr bool IsValidDType(int32_t v) { return v >= 0 && v < kDTypeCount; }

inline constexpr size_t SizeOf(DType t) {
  constexpr uint8_t kBytes[kDTypeCount] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2, 4, 8, 1, 1};
  return kBytes[static_cast<int32_t>(t)];
}

inline constexpr const char* NameOf(DType t) {
  constexpr const char* kNames[kDTypeCount] = {"uint8",    "int8",    "uint16",  "int16",         "int32",
                                               "int64",    "float16", "float32", "float64",       "bool",
                                               "bfloat16", "uint32",  "uint64",  "float8_e4m3fn", "float8_e5m2"};
  return kNames[static_cast<int32_t>(t)];
}

inline constexpr const char* NameOf(OpType t) {
  constexpr const char* kNames[] = {"allreduce", "allgather", "broadcast", "alltoall", "reducescatter",
                                    "barrier",   "join",      "send",      "recv"};
  return kNames[static_cast<int32_t>(t)];
}

// What sets a reduction apart. How it computes is in collective/kernels/vector.h; how other libraries call it, in their
// backends.
struct ReduceRow {
  const char* name;
  enum Neutral { kZero, kOne, kLargest, kLowest } neutral;  // what changes nothing
  bool orders;                                              // it compares: what becomes of a NaN is ours to say
};
inline constexpr ReduceRow kReduceRows[] = {
    {"Average", ReduceRow::kZero, false}, {"Sum", ReduceRow::kZero, false},  {"Adasum", ReduceRow::kZero, false},
    {"Min", ReduceRow::kLargest, true},   {"Max", ReduceRow::kLowest, true}, {"Product", ReduceRow::kOne, false},
};
inline constexpr int kReduceOpCount = sizeof kReduceRows / sizeof kReduceRows[0];
inline constexpr bool IsValidReduceOp(int32_t v) { return v >= 0 && v < kReduceOpCount; }
inline constexpr const ReduceRow& RowOf(ReduceOp op) { return kReduceRows[static_cast<int32_t>(op)]; }
inline constexpr const char* NameOf(ReduceOp op) { return RowOf(op).name; }

inline constexpr bool IsFloat8(DType t) { return t == DType::kFloat8E4m3fn || t == DType::kFloat8E5m2; }

inline constexpr bool IsFloat(DType t) {
  return t == DType::kFloat16 || t == DType::kBfloat16 || t == DType::kFloat32 || t == DType::kFloat64 || IsFloat8(t);
}

}  // namespace hvd
