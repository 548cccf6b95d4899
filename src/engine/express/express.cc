#include "engine/express/express.h"

#include <sched.h>

#include <bit>
#include <chrono>
#include <cstring>

#include "transport/futex.h"

namespace hvd::engine {
namespace {

// Ranks that run in step come within a few microseconds, or when it is their turn on a core. A rank that is later than
// this is not worth waiting for here, because the long way costs about as much.
constexpr auto kPatience = std::chrono::microseconds(10), kCrowdedPatience = std::chrono::microseconds(100);
constexpr int kLooksPerClock = 8;
constexpr int kCrowdedLooks = 4;  // before the core is given away
// Then the core is given to the next thread this often, in case that is the awaited one; then this rank sleeps. Which
// of the two is measured (wait_chooser.h).
constexpr int kFewYields = 4, kManyYields = 256;
static_assert(kCrowdedLooks + kFewYields >= kLooksPerClock, "the clock runs before anybody sleeps");
// Small meetings: above this, copying takes a good part of the time.
constexpr size_t kSmallMeeting = 4 << 10;

// What changes with every rank that comes or leaves.
const void* LowHalf(const std::atomic<uint64_t>& word) {
  const auto* halves = reinterpret_cast<const std::byte*>(&word);
  return std::endian::native == std::endian::little ? halves : halves + sizeof(uint32_t);
}

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

bool Express::Meet(uint64_t fingerprint, size_t bytes) {
  waited_s_ = 0;
  const int yields = n_->cores_are_shared() ? Yields(bytes) : 0;
  // Nobody reads this buffer: all have come to the operation in between, so they were done with the one before it.
  std::memcpy(buffer(n_->self(), round_), &fingerprint, sizeof fingerprint);
  if (!Come(static_cast<uint32_t>(fingerprint)) || !Await(yields)) return false;
  ++round_;
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
  return (ways.load(std::memory_order_relaxed) >> which & 1) != 0 ? kManyYields : kFewYields;
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
    if (word().compare_exchange_weak(seen, w.bits(), std::memory_order_seq_cst, std::memory_order_acquire)) {
      if (w.came == all) WakeSleepers();
      return coming;
    }
  }
}

// yields: 0: this rank has a core of its own. True: all have come. False: this rank has left.
bool Express::Await(int yields) {
  const bool crowded = yields > 0;
  const auto all = static_cast<uint8_t>((1u << n_->size()) - 1);
  std::chrono::steady_clock::time_point began{}, until{}, last{};
  // What was waited since the first look at the clock. The last look is near enough, unless the core was given away.
  const auto note = [&](int looks) {
    if (looks <= kLooksPerClock) return;
    const std::chrono::duration<double> waited = (crowded ? std::chrono::steady_clock::now() : last) - began;
    waited_s_ = waited.count();
  };
  for (int looks = 1;; ++looks) {
    const Word w = Word::Of(word().load(std::memory_order_acquire));
    if (w.round != round_ || w.came == all) {  // another round: a fast rank is there already
      note(looks);
      return true;
    }
    const bool sleeps = crowded && looks > kCrowdedLooks + yields;
    std::chrono::duration<double> left{0};
    bool patient = w.left == 0;
    // A thread that gave its core away may have lost it for long.
    if (patient && (crowded ? looks >= kLooksPerClock : looks % kLooksPerClock == 0)) {
      const auto now = std::chrono::steady_clock::now();
      if (looks == kLooksPerClock) {
        began = now;
        until = now + (crowded ? kCrowdedPatience : kPatience);
      }
      last = now;
      left = until - now;
      patient = now < until;
    }
    if (!patient) {
      note(looks);
      return !Leave();
    }
    if (sleeps) {
      Sleep(static_cast<uint32_t>(w.bits()), left.count());
    } else if (crowded && looks > kCrowdedLooks) {
      sched_yield();
    } else {
      transport::Neighbours::Pause();
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
    if (word().compare_exchange_weak(seen, w.bits(), std::memory_order_seq_cst, std::memory_order_acquire)) {
      WakeSleepers();
      return true;
    }
  }
}

// Until the word is not as it was seen. Counted, so that nobody makes a system call for sleepers that are not there.
// The count, the word and the looks at both are sequentially consistent: who changes the word sees the sleeper, or the
// sleeper sees the change. A rank that is killed here stays in the count, which costs the others some calls for
// nothing.
void Express::Sleep(uint32_t seen, double timeout_s) {
  auto& sleepers = n_->arena(0).words().express_sleepers;
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  (void)transport::SleepOnWord(LowHalf(word()), seen, timeout_s);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

// A sleeper has to look when all have come, or when a rank has left.
void Express::WakeSleepers() {
  if (n_->arena(0).words().express_sleepers.load(std::memory_order_seq_cst) == 0) return;
  transport::WakeSleepersOn(LowHalf(word()), kMostRanks);
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
bool Express::AllAgree(uint64_t fingerprint) const {
  for (int m = 0; m < n_->size(); ++m) {
    uint64_t theirs;
    std::memcpy(&theirs, of(m) - sizeof theirs, sizeof theirs);
    if (theirs != fingerprint) return false;
  }
  return true;
}

}  // namespace hvd::engine
