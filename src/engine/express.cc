#include "engine/express.h"

#include <sched.h>

#include <chrono>
#include <cstring>

#include "collective/kernels.h"

namespace hvd {
namespace {

// Ranks that run in step come within a few microseconds, or when it is their turn on a core. Who is later than this is
// not worth waiting for here, because the long way costs about as much.
constexpr auto kPatience = std::chrono::microseconds(10), kCrowdedPatience = std::chrono::microseconds(100);
constexpr int kLooksPerClock = 8;
constexpr int kCrowdedLooks = 4;  // before the core is given away
constexpr size_t kInline = 56;    // so much data shares the line of its fingerprint

size_t DataOffset(size_t bytes) { return bytes <= kInline ? sizeof(uint64_t) : 64; }

}  // namespace

// The word: which operation of the job's life (mod 2^16; nobody can be two behind), part of its fingerprint, who has
// come, and who wanted it and has left.
struct Express::Word {
  uint16_t round;
  uint32_t ident;
  uint8_t came, left;

  static Word Of(uint64_t bits) {
    return {static_cast<uint16_t>(bits >> 48), static_cast<uint32_t>(bits >> 16), static_cast<uint8_t>(bits >> 8),
            static_cast<uint8_t>(bits)};
  }
  uint64_t bits() const {
    return (static_cast<uint64_t>(round) << 48) | (static_cast<uint64_t>(ident) << 16) |
           (static_cast<uint64_t>(came) << 8) | left;
  }
};

bool Express::Run(const Request& request) {
  const size_t bytes = request.elems * SizeOf(request.dtype);
  std::byte* own = buffer(n_->self());
  // Nobody reads this buffer: all have come to the operation in between, so they were done with the one before it.
  std::memcpy(own, &request.fingerprint, sizeof request.fingerprint);
  Copy(own + DataOffset(bytes), request.input, bytes);
  if (!Come(static_cast<uint32_t>(request.fingerprint)) || !Await()) return false;
  const bool same = Combine(request);
  ++round_;
  return same;
}

// False: somebody waits for another operation, or has given this one up.
bool Express::Come(uint32_t ident) {
  const auto me = static_cast<uint8_t>(1u << n_->self()), all = static_cast<uint8_t>((1u << n_->size()) - 1);
  uint64_t seen = word().load(std::memory_order_acquire);
  for (;;) {
    Word w = Word::Of(seen);
    bool coming = true;
    marked_ = false;
    if (w.round != round_ || (w.came == 0 && (w.ident != ident || w.left == 0 || (w.left & me) != 0))) {
      w = {round_, ident, me, 0};  // the first; what was left behind here is of the past
    } else if (w.ident != ident) {
      return false;
    } else if (w.left != 0) {
      coming = false;
      marked_ = true;
      w.left |= me;
      if (w.left == all) w.left = 0;
    } else {
      w.came |= me;
    }
    if (word().compare_exchange_weak(seen, w.bits(), std::memory_order_acq_rel, std::memory_order_acquire))
      return coming;
  }
}

// True: all have come. False: this rank has left.
bool Express::Await() {
  const auto all = static_cast<uint8_t>((1u << n_->size()) - 1);
  std::chrono::steady_clock::time_point until{};
  for (int looks = 1;; ++looks) {
    const Word w = Word::Of(word().load(std::memory_order_acquire));
    if (w.round != round_ || w.came == all) return true;  // another round: a fast rank is there already
    bool patient = w.left == 0;
    if (patient && looks % kLooksPerClock == 0) {
      const auto now = std::chrono::steady_clock::now();
      if (looks == kLooksPerClock) until = now + (crowded_ ? kCrowdedPatience : kPatience);
      patient = now < until;
    }
    if (!patient) return !Leave();
    if (crowded_ && looks > kCrowdedLooks) {
      sched_yield();
    } else {
      Neighbours::Pause();
    }
  }
}

// False: too late, all have come.
bool Express::Leave() {
  const auto me = static_cast<uint8_t>(1u << n_->self()), all = static_cast<uint8_t>((1u << n_->size()) - 1);
  uint64_t seen = word().load(std::memory_order_acquire);
  for (;;) {
    Word w = Word::Of(seen);
    if (w.round != round_ || w.came == all) return false;
    marked_ = true;
    w.came &= static_cast<uint8_t>(~me);
    w.left |= me;
    if (w.left == all) w.left = 0;
    if (word().compare_exchange_weak(seen, w.bits(), std::memory_order_acq_rel, std::memory_order_acquire)) return true;
  }
}

void Express::Forget() {
  if (!marked_) return;
  marked_ = false;
  uint64_t seen = word().load(std::memory_order_acquire);
  Word w = Word::Of(seen);
  if (w.round != round_ || w.came != 0) return;
  w.left = 0;
  word().compare_exchange_strong(seen, w.bits(), std::memory_order_acq_rel);  // if it fails, there is news already
}

// False, on all ranks alike: two fingerprints agree in the word, but not as a whole.
bool Express::Combine(const Request& r) {
  const void* srcs[kMostRanks];
  const size_t bytes = r.elems * SizeOf(r.dtype);
  for (int m = 0; m < n_->size(); ++m) {
    uint64_t fingerprint;
    std::memcpy(&fingerprint, buffer(m), sizeof fingerprint);
    if (fingerprint != r.fingerprint) return false;
    srcs[m] = buffer(m) + DataOffset(bytes);
  }
  void* dst = r.output;
  Reduce({r.dtype, r.op, {r.prescale, r.postscale}, srcs, n_->size(), &dst, 1, r.elems});
  return true;
}

}  // namespace hvd
