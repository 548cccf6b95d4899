// Memory that runs out when a test wants it to: the test program's operator new (scarce_memory.cc) asks here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::test {

// While it lives, allocations of this thread fail: the one after `granted` others, and those after it if `lasting`.
class ScarceMemory {
 public:
  explicit ScarceMemory(int64_t granted, bool lasting = false);
  ~ScarceMemory();
  ScarceMemory(const ScarceMemory&) = delete;
  ScarceMemory& operator=(const ScarceMemory&) = delete;
  // Whether one has failed.
  bool met() const;
};

// While it lives, allocations of so many bytes and more fail, in all threads.
class NoLargeMemory {
 public:
  explicit NoLargeMemory(size_t bytes);
  ~NoLargeMemory();
  NoLargeMemory(const NoLargeMemory&) = delete;
  NoLargeMemory& operator=(const NoLargeMemory&) = delete;
};

}  // namespace hvd::test
