// What all reductions by NCCL have in common: what it can reduce, how a sum gets its factor, and how tensors are
// packed.
#pragma once

#include <string>
#include <vector>

#include "backend/nccl/call.h"

namespace hvd::backend::nccl {

// In the packed buffer: NCCL is faster from such addresses.
constexpr size_t kAlign = 256;
inline size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Empty: NCCL reduces it as our own ways do. The same on all members.
std::string WhyNotReduced(const collective::Batch& batch);

struct Summing {
  int op = kSum;        // for NCCL
  float factor = 1.0f;  // by our kernel, before
};
Result<Summing> SummingOf(const Call& call);
// For tensors that our kernel moves in any case: it multiplies, where it can. NVLink SHARP adds up but has no factors.
Result<Summing> SummingOfPacked(const Call& call);

// Where a tensor lies in the buffer.
struct Packed {
  const collective::Tensor* tensor;
  size_t at;
};
// Multiplies, too.
Status Pack(const Call& call, const std::vector<Packed>& packed, float factor, std::byte* buffer);
Status Unpack(const Call& call, const std::vector<Packed>& packed, const std::byte* buffer);

}  // namespace hvd::backend::nccl
