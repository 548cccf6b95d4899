// Request: what one rank wants. The engine builds it from an hvd_op, the negotiation compares it with the other
// members' and hands the agreed one back with the batch. A plain value; the tensor itself stays in the engine and is
// found again by `ticket`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace hvd {

struct Request {
  OpType type = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // allreduce and reducescatter; keep it kSum for the others
  int32_t root = 0;              // global rank; broadcast
  int32_t process_set = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::string name;
  std::vector<int64_t>
      shape;  // of this rank; the agreed request of allgather and alltoall holds one member's first extent
  // Identity of an atomic group: hash of its ordered member names (never 0), number of members, place in it. 0, 0, 0 =
  // no group.
  uint64_t group_hash = 0;
  int32_t group_size = 0;
  int32_t group_index = 0;
  bool transient = false;  // unnamed (counted) operation: never cached
  // The engine's own mark for this rank's entry, not negotiated: comes back in Entry::ticket and Action::ticket. Must
  // not be 0.
  uint64_t ticket = 0;

  // Bytes of this rank's tensor; INT64_MAX when the number does not fit.
  int64_t bytes() const {
    int64_t n = static_cast<int64_t>(SizeOf(dtype));
    for (int64_t extent : shape) {
      if (extent <= 0) return 0;
      if (__builtin_mul_overflow(n, extent, &n)) n = INT64_MAX;
    }
    return n;
  }
};

// FNV-1a over the names, in order, with separators; never 0.
uint64_t GroupHash(const std::vector<std::string>& ordered_names);

}  // namespace hvd
