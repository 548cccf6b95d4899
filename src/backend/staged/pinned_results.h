// PinnedResults: memory of the host for results whose size is known late: pinned, so that they leave for the device
// without the driver's help, who would have its caller wait while it copies them to pinned memory of its own.
#pragma once

#include <memory>
#include <utility>

#include "backend/cuda/memory.h"

namespace hvd::backend::staged {

class PinnedResults final : public collective::BlockGiver {
 public:
  // Of one batch; what is more is left to the driver: pinned memory stays.
  static constexpr size_t kMostBytes = size_t{256} << 20;

  explicit PinnedResults(std::shared_ptr<const cuda::Context> context) : pinned_(std::move(context)) {}

  // What it has given is free again: no work under way may still use it.
  void Reset() {
    pinned_.Reset();
    given_bytes_ = 0;
  }
  std::unique_ptr<collective::Block> Give(size_t bytes) override {
    if (bytes == 0 || bytes > kMostBytes - given_bytes_) return nullptr;
    const Result<std::byte*> room = pinned_.Room(bytes);
    if (!room.ok()) return nullptr;  // the host's own memory is as good, only slower
    given_bytes_ += bytes;
    return std::make_unique<collective::Block>(*room, bytes, keeper_);
  }

 private:
  // Blocks come back to nobody: they are free with the next Reset.
  class Keeper final : public collective::BlockOwner {
    void TakeBack(std::byte*, size_t) override {}
  };
  const std::shared_ptr<Keeper> keeper_ = std::make_shared<Keeper>();
  cuda::PinnedMemory pinned_;
  size_t given_bytes_ = 0;
};

}  // namespace hvd::backend::staged
