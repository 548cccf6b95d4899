// Memory for a result on the GPU, as collective::Tensor::PlaceResult has it for the host.
#pragma once

#include "backend/cuda/memory.h"
#include "backend/cuda/stream.h"

namespace hvd::backend::cuda {

// Has `output` point to memory for a result of so many bytes, which `stream` may store into: the caller's, if it is for
// exactly as many, or a block.
inline Status PlaceResult(DeviceMemory& memory, const Stream& stream, size_t bytes, collective::Tensor* t) {
  if (t->output != nullptr && t->room == bytes && bytes > 0) return Status();
  std::shared_ptr<DeviceEvent> ready;
  Result<std::unique_ptr<Block>> block = memory.Allocate(bytes, &ready);
  HVD_TRY(block.status());
  if (ready != nullptr) HVD_TRY(ready->HoldBack(stream.handle()));
  t->result = std::move(*block);
  t->output = t->result->data;
  return Status();
}

}  // namespace hvd::backend::cuda
