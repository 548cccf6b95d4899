#include "native/harness/scarce_memory.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace hvd::test {
namespace {

constexpr int64_t kPlenty = std::numeric_limits<int64_t>::max();
thread_local int64_t granted_left = kPlenty;
thread_local bool lasts = false;
thread_local bool denied = false;
std::atomic<size_t> largest{std::numeric_limits<size_t>::max()};

bool Denied(size_t bytes) {
  if (bytes >= largest.load(std::memory_order_relaxed)) return true;
  if (granted_left == kPlenty || granted_left-- > 0) return false;
  denied = true;
  granted_left = lasts ? 0 : kPlenty;
  return true;
}

void* Allocate(size_t bytes) { return Denied(bytes) ? nullptr : std::malloc(bytes > 0 ? bytes : 1); }
void* Allocate(size_t bytes, std::align_val_t align) {
  const auto unit = static_cast<size_t>(align);
  return Denied(bytes) ? nullptr : std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}
void* OrThrow(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

ScarceMemory::ScarceMemory(int64_t granted, bool lasting) {
  granted_left = granted;
  lasts = lasting;
  denied = false;
}
ScarceMemory::~ScarceMemory() { granted_left = kPlenty; }
bool ScarceMemory::met() const { return denied; }

NoLargeMemory::NoLargeMemory(size_t bytes) { largest = bytes; }
NoLargeMemory::~NoLargeMemory() { largest = std::numeric_limits<size_t>::max(); }

}  // namespace hvd::test

// The array forms end here, too.
void* operator new(size_t bytes) { return hvd::test::OrThrow(hvd::test::Allocate(bytes)); }
void* operator new(size_t bytes, std::align_val_t align) {
  return hvd::test::OrThrow(hvd::test::Allocate(bytes, align));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return hvd::test::Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return hvd::test::Allocate(bytes, align);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
