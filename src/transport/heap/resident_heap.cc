#include "transport/heap/resident_heap.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace hvd::transport {
namespace {
// How much is in memory twice while it is made private.
constexpr size_t kPrivateStep = 16 << 20;
constexpr size_t kGrowth = 4 << 20;
}  // namespace

Result<void*> ResidentHeap::Allocate(size_t bytes) {
  // Whole pages, so that MakePrivate can replace an allocation without touching its neighbours.
  bytes = std::max<size_t>(1, (bytes + kPageBytes - 1) / kPageBytes) * kPageBytes;
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return Status(Code::kShutdown, "no shared tensors any more: the engine has failed or shut down.");
  const std::optional<size_t> place = free_.Take(bytes);
  if (!place) {
    return Status(Code::kResource, "no room for a shared tensor of " + std::to_string(bytes) + " bytes in the " +
                                       std::to_string(bytes_) + " bytes reserved; raise HOROVOD_RESIDENT_BYTES.");
  }
  const size_t offset = *place, end = offset + bytes;
  if (Status s = Back(end); !s.ok()) {
    free_.Give(offset, bytes);
    return s;
  }
  used_[offset] = bytes;
  std::byte* data = region_->data() + at_ + offset;
  const size_t touched = touched_;
  if (offset < touched) std::memset(data, 0, std::min(bytes, touched - offset));
  touched_ = std::max(touched, end);
  return static_cast<void*>(data);
}

bool ResidentHeap::Free(void* data) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::byte* base = region_->data() + at_;
  const auto* p = static_cast<const std::byte*>(data);
  if (p < base || p >= base + bytes_) return false;
  auto it = used_.find(static_cast<size_t>(p - base));
  if (it == used_.end()) return false;
  const auto [offset, bytes] = *it;
  used_.erase(it);
  free_.Give(offset, bytes);
  return true;
}

// Grows in steps, to keep the number of system calls small when a model's gradients arrive one by one.
Status ResidentHeap::Back(size_t end) {
  if (end <= committed_) return Status();
  const size_t target = std::min(bytes_, std::max(end, committed_ + kGrowth));
  const bool grown = region_->Commit(at_ + committed_, target - committed_).ok();
  if (!grown) HVD_TRY(region_->Commit(at_ + committed_, end - committed_));
  committed_ = grown ? target : end;
  return Status();
}

std::optional<uint64_t> ResidentHeap::OffsetOf(const void* data, size_t bytes) const {
  const auto* p = static_cast<const std::byte*>(data);
  const std::byte* base = region_->data() + at_;
  if (p < base || p >= base + bytes_ || bytes > static_cast<size_t>(base + bytes_ - p)) return std::nullopt;
  return static_cast<uint64_t>(p - base);
}

// Again after a failure it goes on where it was: to make a step twice would take what is there from under the owner.
Status ResidentHeap::MakePrivate() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  for (const auto& [offset, bytes] : used_) {
    while (private_to_ < offset + bytes) {
      const size_t from = std::max(private_to_.load(), offset), n = std::min(kPrivateStep, offset + bytes - from);
      HVD_TRY(region_->MakePrivate(at_ + from, n));
      private_to_ = from + n;  // before Drop: a child forked from here on keeps its copies
      region_->Drop(at_ + from, n);
    }
  }
  return Status();
}

void ResidentHeap::DetachInChild() {
  const size_t from = private_to_, to = touched_;
  if (from < to) region_->DetachInChild(at_ + from, to - from);
}

bool ResidentHeap::empty() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_.empty();
}

}  // namespace hvd::transport
