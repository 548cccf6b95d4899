// ResidentHeap: hands out pieces of a rank's shared region to tensors that live there (hvd_shared_alloc). Thread-safe.
// Outlives the engine: the last tensor view keeps the region mapped (after MakePrivate nobody else can store into it).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "transport/heap/free_list.h"
#include "transport/region.h"

namespace hvd::transport {

class ResidentHeap {
 public:
  // `bytes` of the region, from `at`.
  ResidentHeap(std::shared_ptr<Region> region, size_t at, size_t bytes)
      : region_(std::move(region)), at_(at), bytes_(bytes) {
    free_.Give(0, bytes_);
  }

  // 64-byte aligned, zeroed, committed.
  Result<void*> Allocate(size_t bytes);
  // False when `data` is not an allocation of this heap.
  bool Free(void* data);
  std::optional<uint64_t> OffsetOf(const void* data, size_t bytes) const;
  // Cuts every live allocation off from the other ranks, at shutdown and abort. Nothing is allocated after it.
  Status MakePrivate();
  // In a forked child: see Region. Takes no lock, which another thread may have held when the process was forked.
  void DetachInChild();
  bool empty() const;

 private:
  // With memory, up to there.
  Status Back(size_t end);

  std::shared_ptr<Region> region_;
  const size_t at_, bytes_;
  mutable std::mutex mutex_;  // guards the changes of all below
  FreeList free_;
  std::map<size_t, size_t> used_;  // offset -> bytes
  size_t committed_ = 0;           // [0, committed_) of the heap is backed by memory
  // [0, touched_) has been handed out before and must be zeroed again.
  std::atomic<size_t> touched_{0};
  bool closed_ = false;                // MakePrivate was called
  std::atomic<size_t> private_to_{0};  // what is allocated below this offset is private
};

}  // namespace hvd::transport
