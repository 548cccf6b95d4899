#include "transport/ring_channel.h"

#include <algorithm>
#include <cstring>

namespace hvd::transport {

RingChannel::RingChannel(Neighbours* neighbours, int local, RingKind kind)
    : n_(neighbours),
      local_(local),
      ring_(kind),
      capacity_(kind == RingKind::kControl ? kControlRingBytes : kDataRingBytes) {}

Result<size_t> RingChannel::Write(std::span<const std::byte> bytes) {
  if (n_->lost(local_)) return n_->Abandoned(local_);
  if (!committed_) {
    HVD_TRY(n_->own().CommitRing(ring_, local_));
    committed_ = true;
  }
  // The peer's word for what it has consumed of this ring is in its own arena. Only trust it as far as it makes sense.
  const uint64_t seen = n_->arena(local_).ring_words(ring_, n_->self()).consumed.load(std::memory_order_seq_cst);
  const uint64_t in_flight = written_ - seen;
  if (in_flight > capacity_)
    return Status(Code::kInternal, "the control words of rank " + std::to_string(peer()) + " are damaged.");
  const size_t n = std::min<size_t>(bytes.size(), capacity_ - in_flight);
  if (n == 0) return size_t{0};
  std::byte* ring = n_->own().ring(ring_, local_);
  const size_t at = written_ % capacity_, first = std::min(n, capacity_ - at);
  std::memcpy(ring + at, bytes.data(), first);
  std::memcpy(ring, bytes.data() + first, n - first);
  written_ += n;
  n_->own().ring_words(ring_, local_).written.store(written_, std::memory_order_seq_cst);
  n_->Notify(local_);
  return n;
}

Result<size_t> RingChannel::Read(std::span<std::byte> bytes) {
  const Arena& theirs = n_->arena(local_);
  const uint64_t written = theirs.ring_words(ring_, n_->self()).written.load(std::memory_order_seq_cst);
  const uint64_t there = written - consumed_;
  if (there > capacity_)
    return Status(Code::kInternal, "the control words of rank " + std::to_string(peer()) + " are damaged.");
  const size_t n = std::min<size_t>(bytes.size(), there);
  if (n == 0) {
    if (there == 0 && n_->lost(local_)) return n_->Abandoned(local_);
    return size_t{0};
  }
  const std::byte* ring = theirs.ring(ring_, n_->self());
  const size_t at = consumed_ % capacity_, first = std::min(n, capacity_ - at);
  std::memcpy(bytes.data(), ring + at, first);
  std::memcpy(bytes.data() + first, ring, n - first);
  consumed_ += n;
  n_->own().ring_words(ring_, local_).consumed.store(consumed_, std::memory_order_seq_cst);
  // The peer may be blocked on a full ring.
  n_->NotifyBlocked(local_);
  return n;
}

// Atomics only: a thread that has just left the driver role looks too.
bool RingChannel::readable() const {
  return n_->arena(local_).ring_words(ring_, n_->self()).written.load(std::memory_order_seq_cst) !=
         n_->own().ring_words(ring_, local_).consumed.load(std::memory_order_relaxed);
}

uint64_t RingChannel::unread() const {
  return written_ - n_->arena(local_).ring_words(ring_, n_->self()).consumed.load(std::memory_order_seq_cst);
}

}  // namespace hvd::transport
