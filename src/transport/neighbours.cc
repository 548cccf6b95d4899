#include "transport/neighbours.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "transport/futex.h"

namespace hvd::transport {

Result<std::unique_ptr<Neighbours>> Neighbours::Create(std::vector<Member> members, int self) {
  std::unique_ptr<Neighbours> n(new Neighbours(std::move(members), self));
  HVD_TRY(n->own().Create());
  const Arena& own = n->own();
  if (own.heap_bytes() == 0) return n;
  const size_t tensors = own.tensors_bytes(), results = own.results_bytes();
  n->heap_ = std::make_shared<ResidentHeap>(own.region(), own.heap_offset(), tensors);
  if (results > 0) n->results_ = std::make_shared<ResultHeap>(own.region(), own.heap_offset() + tensors, results);
  return n;
}

Neighbours::Neighbours(std::vector<Member> members, int self) : members_(std::move(members)), self_(self) {
  for (const Member& m : members_) arenas_.emplace_back(m.region, static_cast<int>(members_.size()));
  lost_.resize(members_.size());
  last_use_.resize(2 + kArenaStages);
  pending_ring_.resize(members_.size());
}

uint64_t Neighbours::Moves(uint64_t seq) const {
  uint64_t sum = 0;
  for (const Arena& arena : arenas_) {
    const uint64_t moves = arena.words().moves.load(std::memory_order_relaxed);
    if (moves >> kMoveBits == (seq << kMoveBits) >> kMoveBits) sum += moves & kMoveMask;
  }
  return sum;
}

void Neighbours::Publish(uint64_t value) {
  own().words().progress.store(value, std::memory_order_seq_cst);
  NotifyAll();
}

void Neighbours::Abandon(uint64_t seq) {
  own().words().failed.store(seq, std::memory_order_seq_cst);
  NotifyAll();
}

Status Neighbours::Abandoned(int local) const {
  if (lost_[local]) return *lost_[local];
  return Status(Code::kInternal,
                "rank " + std::to_string(rank(local)) + " gave up the collective; its own error says why.");
}

void Neighbours::MarkLost(int local, Status why) { lost_[local] = std::move(why); }

void Neighbours::Notify(int local) {
  if (local == self_) return;
  const auto state = static_cast<BellState>(arenas_[local].words().bell.load(std::memory_order_seq_cst));
  if (state == BellState::kAwake) return;
  if (state != BellState::kIdle) return Ring(local);
  pending_ring_[local] = true;
  any_pending_ = true;
}

void Neighbours::NotifyBlocked(int local) {
  if (local == self_) return;
  const auto state = static_cast<BellState>(arenas_[local].words().bell.load(std::memory_order_seq_cst));
  if (state == BellState::kBlocked || state == BellState::kWaiting) Ring(local);
}

void Neighbours::NotifyAll() {
  for (int i = 0; i < size(); ++i) Notify(i);
}

void Neighbours::FlushRings() {
  if (!any_pending_) return;
  any_pending_ = false;
  for (int i = 0; i < size(); ++i) {
    if (!pending_ring_[i]) continue;
    pending_ring_[i] = false;
    Ring(i);
  }
}

void Neighbours::FlushRing(int local) {
  if (!pending_ring_[local]) return;
  pending_ring_[local] = false;
  Ring(local);
}

void Neighbours::Ring(int local) {
  // Only the first to ring pays for the system call.
  auto& bell = arenas_[local].words().bell;
  const auto before =
      static_cast<BellState>(bell.exchange(static_cast<uint32_t>(BellState::kAwake), std::memory_order_seq_cst));
  if (before == BellState::kAwake) return;
  if (before == BellState::kWaiting) {
    WakeSleepersOn(&bell, 1);
    return;
  }
  const uint64_t one = 1;
  while (write(members_[local].doorbell.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

bool Neighbours::SleepOnBell(double timeout_s) {
  return SleepOnWord(&own().words().bell, static_cast<uint32_t>(BellState::kWaiting), timeout_s);
}

std::byte* Neighbours::Resident(int local, uint64_t offset, size_t bytes) const {
  const Arena& a = arenas_[local];
  if (offset > a.heap_bytes() || bytes > a.heap_bytes() - offset) return nullptr;
  return a.heap() + offset;
}

}  // namespace hvd::transport
