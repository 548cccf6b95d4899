#include "engine/express/express.h"

#include <chrono>
#include <cstring>

namespace hvd::engine {
namespace {

// Small meetings: above this, copying takes a good part of the time.
constexpr size_t kSmallMeeting = 4 << 10;

// The line that this rank stores into next, which another has read: it is asked for before it is needed.
void PrefetchForStore(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

std::unique_ptr<Meeting> MeetingOf(transport::Neighbours* neighbours) {
  if (neighbours == nullptr) return nullptr;
  if (neighbours->size() == 2) return std::make_unique<MeetingOfTwo>(neighbours);
  return std::make_unique<MeetingOfMany>(neighbours);
}

}  // namespace

Express::Express(transport::Neighbours* neighbours)
    : n_(neighbours),
      meeting_(MeetingOf(neighbours)),
      alone_(neighbours == nullptr ? std::make_unique<std::byte[]>(transport::kArenaExpressBytes) : nullptr) {}

bool Express::Meet(uint64_t fingerprint, size_t bytes) {
  if (meeting_ == nullptr) return true;
  // Nobody reads this buffer: all have come to the operation in between, so they were done with the one before it.
  std::memcpy(buffer(n_->self(), round_) + sizeof(uint64_t), &fingerprint, sizeof fingerprint);
  Patience patience(n_->cores_are_shared() ? Yields(bytes) : 0);
  const bool met = meeting_->Come(round_, static_cast<uint32_t>(fingerprint), &patience);
  waited_s_ = patience.waited_s();
  if (!met) return false;
  ++round_;
  PrefetchForStore(buffer(n_->self(), round_));
  return AllAgree(fingerprint);
}

// How often ranks that share cores give theirs away in this meeting before they sleep.
int Express::Yields(size_t bytes) {
  const int which = bytes > kSmallMeeting ? 1 : 0;
  std::atomic<uint32_t>& ways = n_->arena(0).words().express_ways;
  if (n_->self() == 0) {
    const std::chrono::duration<double, std::micro> now = std::chrono::steady_clock::now().time_since_epoch();
    if (measured_ >= 0) choosers_[measured_].Took(now.count() - met_at_us_);
    measured_ = which;
    met_at_us_ = now.count();
    uint32_t bits = 0;
    for (int i = 0; i < 2; ++i) bits |= choosers_[i].way() == WaitChooser::Way::kYield ? 1u << i : 0;
    if (ways.load(std::memory_order_relaxed) != bits) ways.store(bits, std::memory_order_relaxed);
  }
  return (ways.load(std::memory_order_relaxed) >> which & 1) != 0 ? Patience::kManyYields : Patience::kFewYields;
}

// False, on all ranks alike: fingerprints differ, be it in the part that the meeting has not compared.
bool Express::AllAgree(uint64_t fingerprint) const {
  for (int m = 0; m < n_->size(); ++m) {
    uint64_t theirs;
    std::memcpy(&theirs, of(m) - sizeof theirs, sizeof theirs);
    if (theirs != fingerprint) return false;
  }
  return true;
}

}  // namespace hvd::engine
