// StagedBackend: what lies on GPUs goes through pinned memory of the host, and the host's ways (docs/design/0022).
// Takes what NCCL does not, or every tensor where NCCL is not to be had; and copies on the GPU where a rank is alone.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_devices.h"
#include "backend/staged/pinned_results.h"
#include "backend/staged/staged_flow.h"

namespace hvd::backend::staged {

class StagedBackend final : public Backend {
 public:
  // Pieces of 4 MB reach 95 % of the bus's rate, of 1 MB 80 % (docs/gpu.md), and the first one in and the last one out
  // have nothing beside them.
  static constexpr size_t kSmallestPiece = 1 << 20, kLargestPiece = 4 << 20;

  // `host`: runs the batches while they pass through the host's memory. Outlives this.
  explicit StagedBackend(Backend* host, size_t smallest_piece = kSmallestPiece)
      : host_(host), smallest_piece_(smallest_piece) {}
  ~StagedBackend() override;

  const char* name() const override { return "staged"; }
  bool for_devices() const override { return true; }
  std::string why_not() const override {
    return work() == nullptr ? "no tensor on a GPU has been submitted on this rank yet" : "";
  }
  // A rank that has joined before that takes part, with the host's memory.
  bool usable() const override { return true; }
  std::string Unsupported(const Group&, const Batch&) const override { return ""; }
  Task Execute(const Group& group, Batch& batch) override;
  void Abort() override;
  std::string ActivityName(const Group& group, const Batch& batch) const override {
    return host_->ActivityName(group, batch);
  }

  // Once, by any thread, before a tensor on the GPU has been submitted.
  Status Use(std::shared_ptr<cuda::CudaDevices> devices);

 private:
  struct Work {
    std::shared_ptr<cuda::CudaDevices> devices;
    std::shared_ptr<const cuda::Stream> in, out;  // what comes from the device; the rest
    cuda::PinnedMemory pinned;                    // for what passes through
    PinnedResults results;
  };
  Work* work() const { return work_.load(std::memory_order_acquire); }
  // Whether a rank that is alone needs nothing but its GPU.
  bool CanStay(const Batch& batch) const;
  Task Alone(const Group& group, Batch& batch);
  Task ThroughHost(const Group& group, Batch& batch);
  void Lead(const Group& group, const Batch& batch, std::byte* room, Batch* staged, StagedFlow* flow);
  Status Finish(const Group& group, Batch& batch, Batch& staged, StagedFlow& flow);
  Status CopyOver(const Batch& batch);
  Status CopyEach(const std::vector<cuda::Move>& moves);
  Status MoveOver(const std::vector<cuda::Move>& moves, DType dtype, double factor);
  Status GiveResult(collective::Tensor& to, collective::Tensor& from);
  // The end of what has been put on the stream `out`, which is the end of the batch.
  Status Mark();

  Backend* const host_;
  const size_t smallest_piece_;
  std::unique_ptr<Work> own_;         // guarded by its being set once
  std::atomic<Work*> work_{nullptr};  // the same; null: this rank has no GPU, and stands in with the host's memory
  std::shared_ptr<cuda::Event> end_;
  std::vector<std::unique_ptr<collective::Block>> returning_;  // results of the last batch, until end_
};

}  // namespace hvd::backend::staged
