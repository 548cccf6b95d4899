#include "transport/arena.h"

namespace hvd::transport {
namespace {
constexpr size_t RoundUp(size_t n) { return (n + kPageBytes - 1) / kPageBytes * kPageBytes; }
}  // namespace

Arena::Arena(std::shared_ptr<Region> region, int local_size) : region_(std::move(region)), base_(region_->data()) {
  small_at_ = kRingWordsAt + RoundUp(sizeof(RingWords) * 2 * local_size);
  stages_at_ = small_at_ + 2 * kArenaSmallBytes;
  rings_at_ = stages_at_ + kArenaStages * kArenaStageBytes;
  heap_at_ = FixedBytes(local_size);
}

size_t Arena::FixedBytes(int local_size) {
  return kRingWordsAt + RoundUp(sizeof(RingWords) * 2 * local_size) + 2 * kArenaSmallBytes +
         kArenaStages * kArenaStageBytes + local_size * (kControlRingBytes + kDataRingBytes);
}

// The words are not constructed: a fresh region is zero, which is what they begin with, and a neighbour that started
// earlier may be looking at them already.
Status Arena::Create() { return region_->Commit(0, rings_at_); }

}  // namespace hvd::transport
