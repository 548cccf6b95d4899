// Region: memory that several ranks map. Two implementations: HeapRegion lives in this process (the verified fake:
// ranks as threads run the very same code under the thread sanitizer), MemfdRegion maps a sealed memfd that came from a
// peer or was made for this rank.
#pragma once

#include <cstddef>
#include <memory>

#include "base/status.h"

namespace hvd::transport {

inline constexpr size_t kPageBytes = 4096;

class Region {
 public:
  virtual ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Backs [offset, offset + bytes) with memory, or says that there is none: storing into committed memory never raises
  // SIGBUS.
  virtual Status Commit(size_t offset, size_t bytes) = 0;
  // Replaces the pages of [offset, offset + bytes) by private ones with the same content: no other process can store
  // into them any more. What threads of this process store meanwhile is kept. Takes as much memory again, until Drop.
  // When it fails the pages are as they were. Not to be repeated for pages where it has succeeded.
  virtual Status MakePrivate(size_t offset, size_t bytes) = 0;
  // Gives back the shared pages behind private ones; the others see zeros there from then on.
  virtual void Drop(size_t offset, size_t bytes) = 0;
  // Shared pages again, in place of private ones, whose memory is given back. They hold zeros after Drop, and must be
  // committed before they are stored into.
  virtual Status MakeShared(size_t offset, size_t bytes) = 0;
  // In a forked child: [offset, offset + bytes) becomes copy-on-write, so that what the child stores stays its own.
  // Pages that it has not stored into may go on showing what the parent does, and zeros after Drop. Safe in a handler
  // of pthread_atfork.
  virtual void DetachInChild(size_t offset, size_t bytes) = 0;

 protected:
  Region() = default;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

std::shared_ptr<Region> NewHeapRegion(size_t bytes);
// Maps `fd`, which must be a memfd of at least `bytes` bytes that can no longer shrink; closes it.
Result<std::shared_ptr<Region>> MapMemfd(int fd, size_t bytes);

}  // namespace hvd::transport
