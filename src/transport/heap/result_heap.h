// ResultHeap: the part of a rank's shared region where results of collectives lie, so that the other ranks of the host
// store their parts straight into them. A piece belongs to the collective first, and then to the program, for as long
// as it keeps the result. Thread-safe.
//
// The program's results are its own memory: a forked child has a copy of them, whatever the parent does with its own.
// So those that the program has are made private before a fork, and shared again when they are given back.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "transport/heap/free_list.h"
#include "transport/region.h"

namespace hvd::transport {

class ResultHeap {
 public:
  // `bytes` of the region, from `at`: whole pages.
  ResultHeap(std::shared_ptr<Region> region, size_t at, size_t bytes);

  // Memory for a result, not zeroed; nullptr: there is none.
  std::byte* Take(size_t bytes);
  // False: no memory for the books of the heap, which loses this piece.
  bool Free(std::byte* data);
  // The program has the result from now on: no other rank stores into it any more.
  void HandOver(std::byte* data);
  // Makes every piece private, when no other rank stores into any. Nothing is taken afterwards.
  Status MakePrivate();
  // Nothing: it is no piece of this heap.
  std::optional<size_t> OffsetInRegion(const std::byte* data) const {
    if (data < region_->data() + at_ || data >= region_->data() + at_ + bytes_) return std::nullopt;
    return static_cast<size_t>(data - region_->data());
  }

  // For pthread_atfork. The first locks the heap, the others unlock it.
  void BeforeFork();
  void AfterForkInParent() { mutex_.unlock(); }
  void AfterForkInChild();

 private:
  struct Piece {
    size_t bytes = 0;
    size_t private_bytes = 0;  // of its beginning
    bool handed_over = false;
  };
  Status MakePrivate(size_t offset, Piece* piece);
  Status Commit(size_t offset, size_t bytes);
  // Asked before the lock, which a thread of the parent may have held: only the current engine's heap is locked while a
  // process forks.
  bool in_child() const;
  std::optional<size_t> TakeBare(size_t bytes);
  void DropWarm();
  std::map<size_t, Piece>::iterator Find(const std::byte* data);

  const std::shared_ptr<Region> region_;
  const size_t at_, bytes_;
  const int process_;
  std::mutex mutex_;              // guards what follows
  std::map<size_t, Piece> used_;  // by offset in the region
  size_t used_bytes_ = 0;
  size_t freed_bytes_ = 0;  // of all that were given back
  FreeList warm_;           // with memory, to be used first
  size_t warm_bytes_ = 0;
  FreeList bare_;  // without
  bool closed_ = false;
};

}  // namespace hvd::transport
