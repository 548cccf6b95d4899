// NCCL's numbers, by hand: there is no header of it where this is built. As of NCCL 2.18; later ones add to them. RCCL
// has the same, ncclConfig_t included, whose size and version it heeds likewise.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "base/dtype.h"

namespace hvd::backend::nccl {

using Communicator = void*;  // ncclComm_t
using Stream = void*;        // cudaStream_t, which is a CUstream; hipStream_t

inline constexpr int kSuccess = 0, kInProgress = 7;            // ncclResult_t
inline constexpr int kSum = 0, kProd = 1, kMax = 2, kMin = 3;  // ncclRedOp_t
inline constexpr int kUint8 = 1;                               // ncclDataType_t: bytes
inline constexpr int kHostImmediate = 1;                       // ncclScalarResidence_t: read during the call

// ncclUniqueId; passed by value.
struct UniqueId {
  std::array<std::byte, 128> bytes = {};
};

// ncclConfig_t with the fields that 2.18 has, and that version in it: later libraries fill in what it lacks.
struct Config {
  static constexpr int kUndefined = -2147483647 - 1;
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = 0;
  int cga_cluster_size = kUndefined, min_ctas = kUndefined, max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

// What NCCL can add up; nothing: it has no such type.
inline std::optional<int> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return 0;
    case DType::kUint8:
      return kUint8;
    case DType::kInt32:
      return 2;
    case DType::kUint32:
      return 3;
    case DType::kInt64:
      return 4;
    case DType::kUint64:
      return 5;
    case DType::kFloat16:
      return 6;
    case DType::kFloat32:
      return 7;
    case DType::kFloat64:
      return 8;
    case DType::kBfloat16:
      return 9;
    default:
      return std::nullopt;
  }
}

}  // namespace hvd::backend::nccl
