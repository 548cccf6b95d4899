// Share: the tensors of a batch in one buffer on the device, and the part of that which this member takes to the other
// hosts, where NCCL works inside the hosts only.
#pragma once

#include <vector>

#include "backend/nccl/reducing.h"

namespace hvd::backend::nccl {

struct Share {
  explicit Share(const Call& call) {
    size_t total = 0;
    for (const collective::Tensor& t : call.batch.tensors) {
      if (t.elems == 0) continue;
      packed.push_back({&t, total});
      total += Aligned(call.BytesOf(t));
    }
    const auto n = static_cast<size_t>(call.member.size());
    bytes = Aligned((total + n - 1) / n);
    elems = bytes / call.elem_bytes();
    whole = bytes * n;
    at = bytes * static_cast<size_t>(call.member.index());
  }
  std::byte* in_buffer() const { return buffer + at; }

  std::vector<Packed> packed;
  size_t whole = 0, at = 0, bytes = 0, elems = 0;  // of the buffer; of the share
  std::byte* buffer = nullptr;
  std::byte* in_host = nullptr;  // pinned
};

}  // namespace hvd::backend::nccl
