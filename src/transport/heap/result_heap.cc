#include "transport/heap/result_heap.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

namespace hvd::transport {
namespace {
// What waits with memory for the next result; a larger one is not for this heap.
constexpr size_t kMostWarm = 128u << 20;
// So much at a time: what is made private lies in memory twice for a moment, and a signal that comes while pages are
// committed has it done again.
constexpr size_t kStep = 4u << 20;
}  // namespace

ResultHeap::ResultHeap(std::shared_ptr<Region> region, size_t at, size_t bytes)
    : region_(std::move(region)), at_(at), bytes_(bytes), process_(getpid()) {
  bare_.Give(at, bytes);
}

bool ResultHeap::in_child() const { return getpid() != process_; }

std::byte* ResultHeap::Take(size_t bytes) {
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_ || bytes == 0 || bytes > kMostWarm) return nullptr;
  std::optional<size_t> offset = warm_.Take(bytes);
  if (offset) {
    warm_bytes_ -= bytes;
  } else {
    offset = TakeBare(bytes);
    if (!offset) return nullptr;
  }
  used_[*offset] = {.bytes = bytes};
  used_bytes_ += bytes;
  return region_->data() + *offset;
}

// New pages cost more than the collective that fills them, unless they are used again. So a program that keeps all its
// results gets two here, and one that gives them back as many as it has given back.
std::optional<size_t> ResultHeap::TakeBare(size_t bytes) {
  if (used_bytes_ > bytes + freed_bytes_) return std::nullopt;
  std::optional<size_t> offset = bare_.Take(bytes);
  if (!offset && warm_bytes_ > 0) {
    DropWarm();
    offset = bare_.Take(bytes);
  }
  if (!offset || Commit(*offset, bytes).ok()) return offset;
  region_->Drop(*offset, bytes);
  bare_.Give(*offset, bytes);
  return std::nullopt;
}

Status ResultHeap::Commit(size_t offset, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kStep) HVD_TRY(region_->Commit(offset + at, std::min(kStep, bytes - at)));
  return Status();
}

bool ResultHeap::Free(std::byte* data) try {
  if (in_child()) return true;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = Find(data);
  if (it == used_.end()) return true;
  const auto [offset, piece] = *it;
  used_.erase(it);
  used_bytes_ -= piece.bytes;
  freed_bytes_ += piece.bytes;
  if (piece.private_bytes > 0) {
    if (region_->MakeShared(offset, piece.bytes).ok()) bare_.Give(offset, piece.bytes);
    return true;
  }
  if (warm_bytes_ + piece.bytes > kMostWarm) DropWarm();  // the next result is probably like this one
  warm_.Give(offset, piece.bytes);
  warm_bytes_ += piece.bytes;
  if (closed_) DropWarm();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void ResultHeap::DropWarm() {
  for (const auto& [offset, bytes] : warm_.TakeAll()) {
    region_->Drop(offset, bytes);
    bare_.Give(offset, bytes);
  }
  warm_bytes_ = 0;
}

void ResultHeap::HandOver(std::byte* data) {
  if (in_child()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = Find(data); it != used_.end()) it->second.handed_over = true;
}

std::map<size_t, ResultHeap::Piece>::iterator ResultHeap::Find(const std::byte* data) {
  const std::optional<size_t> offset = OffsetInRegion(data);
  return offset ? used_.find(*offset) : used_.end();
}

Status ResultHeap::MakePrivate() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  DropWarm();
  for (auto& [offset, piece] : used_) HVD_TRY(MakePrivate(offset, &piece));
  return Status();
}

Status ResultHeap::MakePrivate(size_t offset, Piece* piece) {
  while (piece->private_bytes < piece->bytes) {
    const size_t from = offset + piece->private_bytes, n = std::min(kStep, piece->bytes - piece->private_bytes);
    HVD_TRY(region_->MakePrivate(from, n));
    piece->private_bytes += n;
    region_->Drop(from, n);
  }
  return Status();
}

// What cannot be made private is made so in the child, where it may show what the parent does until it is stored into.
void ResultHeap::BeforeFork() {
  mutex_.lock();
  for (auto& [offset, piece] : used_) {
    if (piece.handed_over) (void)MakePrivate(offset, &piece);
  }
}

void ResultHeap::AfterForkInChild() {
  for (const auto& [offset, piece] : used_)
    region_->DetachInChild(offset + piece.private_bytes, piece.bytes - piece.private_bytes);
  mutex_.unlock();
}

}  // namespace hvd::transport
