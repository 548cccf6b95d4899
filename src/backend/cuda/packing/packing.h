// Packing: many tensors moved in one launch, and multiplied by a factor on the way: into a buffer and out of it again.
// At 97 % of the rate of a plain copy; a copy for each tensor takes six times as long (docs/gpu.md).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/driver/context.h"
#include "backend/cuda/packing/packing_kernels.h"
#include "base/dtype.h"

namespace hvd::backend::cuda {

struct Move {
  const std::byte* from;  // from == to: scaled in place; no other overlap
  std::byte* to;
  size_t bytes;
};

class Packing {
 public:
  explicit Packing(std::shared_ptr<const Context> context) : context_(std::move(context)) {}
  Packing(const Packing&) = delete;
  Packing& operator=(const Packing&) = delete;

  // Whether Launch can multiply elements of this type.
  static bool CanScale(DType dtype);
  // Compiles the kernels, if nobody has yet: 0.1 s when they are new to the driver. kBackendUnavailable: it cannot.
  Status Prepare();
  // How many so many moves take, of less than a gigabyte each.
  static size_t Launches(size_t moves) { return (moves + kPackEntries - 1) / kPackEntries; }
  // Puts the moves on `stream`: one launch for each 168 of them. The factor is rounded to float32; 1: bytes stay as
  // they are, whatever the type. Whole elements, at addresses of which the elements' size is a divisor.
  Status Launch(const std::vector<Move>& moves, DType dtype, double factor, Handle stream);

 private:
  enum Kernel { kBytes, kF32, kF16, kBf16, kKernels };
  static Kernel KernelFor(DType dtype, float factor);
  Status Compile();
  Result<Handle> LoadPtx() const;
  Result<Handle> LoadHip() const;

  const std::shared_ptr<const Context> context_;
  std::mutex mutex_;  // guards what follows until it is prepared
  bool prepared_ = false;
  Status failure_;
  Handle kernels_[kKernels] = {};
};

}  // namespace hvd::backend::cuda
