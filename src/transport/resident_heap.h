// ResidentHeap: hands out pieces of a rank's shared region to tensors that live there (hvd_shared_alloc). Thread-safe.
// Outlives the engine: the last tensor view keeps the region mapped (after MakePrivate nobody else can store into it).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "transport/region.h"

namespace hvd {

class ResidentHeap {
 public:
  ResidentHeap(std::shared_ptr<Region> region, size_t at)
      : region_(std::move(region)), at_(at), bytes_(region_->bytes() - at) {
    free_[0] = bytes_;
  }

  // 64-byte aligned, zeroed, committed.
  Result<void*> Allocate(size_t bytes);
  // False when `data` is not an allocation of this heap.
  bool Free(void* data);
  std::optional<uint64_t> OffsetOf(const void* data, size_t bytes) const;
  // Cuts every live allocation off from the other ranks; called at shutdown and abort.
  Status MakePrivate();
  bool empty() const;

 private:
  std::shared_ptr<Region> region_;
  const size_t at_, bytes_;
  mutable std::mutex mutex_;       // guards all below
  std::map<size_t, size_t> free_;  // offset -> bytes, coalesced
  std::map<size_t, size_t> used_;  // offset -> bytes
  size_t committed_ = 0;           // [0, committed_) of the heap is backed by memory
  size_t touched_ = 0;             // [0, touched_) has been handed out before and must be zeroed again
};

}  // namespace hvd
