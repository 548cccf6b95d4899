#include "transport/resident_heap.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace hvd {
namespace {
// Whole pages, so that MakePrivate can replace an allocation without touching its neighbours.
constexpr size_t kUnit = 4096;
}  // namespace

Result<void*> ResidentHeap::Allocate(size_t bytes) {
  bytes = std::max<size_t>(1, (bytes + kUnit - 1) / kUnit) * kUnit;
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = std::find_if(free_.begin(), free_.end(), [&](const auto& f) { return f.second >= bytes; });
  if (it == free_.end()) {
    return Status(Code::kInternal, "no room for a shared tensor of " + std::to_string(bytes) + " bytes in the " +
                                       std::to_string(bytes_) + " bytes reserved; raise HOROVOD_RESIDENT_BYTES.");
  }
  const size_t offset = it->first, left = it->second - bytes;
  const size_t end = offset + bytes;
  if (end > committed_) {
    // Grow in steps, to keep the number of system calls small when a model's gradients arrive one by one.
    const size_t target = std::min(bytes_, std::max(end, committed_ + (4u << 20)));
    if (!region_->Commit(at_ + committed_, target - committed_).ok()) {
      HVD_TRY(region_->Commit(at_ + committed_, end - committed_));
      committed_ = end;
    } else {
      committed_ = target;
    }
  }
  free_.erase(it);
  if (left > 0) free_[end] = left;
  used_[offset] = bytes;
  std::byte* data = region_->data() + at_ + offset;
  if (offset < touched_) std::memset(data, 0, std::min(bytes, touched_ - offset));
  touched_ = std::max(touched_, end);
  return static_cast<void*>(data);
}

bool ResidentHeap::Free(void* data) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::byte* base = region_->data() + at_;
  const auto* p = static_cast<const std::byte*>(data);
  if (p < base || p >= base + bytes_) return false;
  auto it = used_.find(static_cast<size_t>(p - base));
  if (it == used_.end()) return false;
  auto [offset, bytes] = *it;
  used_.erase(it);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return true;
    }
  }
  free_[offset] = bytes;
  return true;
}

std::optional<uint64_t> ResidentHeap::OffsetOf(const void* data, size_t bytes) const {
  const auto* p = static_cast<const std::byte*>(data);
  const std::byte* base = region_->data() + at_;
  if (p < base || p >= base + bytes_ || bytes > static_cast<size_t>(base + bytes_ - p)) return std::nullopt;
  return static_cast<uint64_t>(p - base);
}

Status ResidentHeap::MakePrivate() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [offset, bytes] : used_) HVD_TRY(region_->MakePrivate(at_ + offset, bytes));
  return Status();
}

bool ResidentHeap::empty() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_.empty();
}

}  // namespace hvd
