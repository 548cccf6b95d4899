// SendCopies: copies of small tensors whose blocking sends have returned, until they are on their way. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "collective/batch.h"

namespace hvd::engine {

class SendCopies final : public collective::BlockOwner, public std::enable_shared_from_this<SendCopies> {
 public:
  static constexpr size_t kMostBytes = 64 << 10;     // of a tensor
  static constexpr size_t kMostTogether = 16 << 20;  // of all that wait

  // limited: of sends to other ranks. Null: the sender has to wait, because the tensor is too large or too many wait
  // already.
  std::unique_ptr<collective::Block> Copy(const void* data, size_t bytes, bool limited);

 private:
  void TakeBack(std::byte* data, size_t bytes) override;

  std::atomic<size_t> together_{0};
};

}  // namespace hvd::engine
