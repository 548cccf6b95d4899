#include "engine/express/meeting.h"
#include "transport/futex.h"

namespace hvd::engine {

// The word: which operation of the job's life (mod 2^16; nobody can be two behind), part of its fingerprint, who has
// come, and who wanted it and has left.
struct MeetingOfMany::Word {
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

bool MeetingOfMany::Come(uint64_t round, uint32_t ident, Patience* patience) {
  round_ = static_cast<uint16_t>(round);
  return Enter(ident) && Await(patience);
}

// False: somebody waits for another operation, or has given this one up.
bool MeetingOfMany::Enter(uint32_t ident) {
  uint64_t seen = word().load(std::memory_order_acquire);
  for (;;) {
    Word w = Word::Of(seen);
    bool coming = true;
    marked_ = false;
    if (w.round != round_ || (w.came == 0 && (w.ident != ident || w.left == 0 || (w.left & me()) != 0))) {
      w = {round_, ident, me(), 0};  // the first; what was left behind here is of the past
    } else if (w.ident != ident) {
      return false;
    } else if (w.left != 0) {
      coming = false;
      marked_ = true;
      w.left |= me();
      if (w.left == all()) w.left = 0;
    } else {
      w.came |= me();
    }
    if (word().compare_exchange_weak(seen, w.bits(), std::memory_order_seq_cst, std::memory_order_acquire)) {
      if (w.came == all()) WakeSleepers();
      return coming;
    }
  }
}

// False: this rank has left.
bool MeetingOfMany::Await(Patience* patience) {
  for (;;) {
    const Word w = Word::Of(word().load(std::memory_order_acquire));
    if (w.round != round_ || w.came == all()) return true;  // another round: a fast rank is there already
    const auto sleep = [&](double timeout_s) { Sleep(static_cast<uint32_t>(w.bits()), timeout_s); };
    if (w.left != 0 || !patience->Again(sleep)) return !Leave();
  }
}

// False: too late, all have come.
bool MeetingOfMany::Leave() {
  uint64_t seen = word().load(std::memory_order_acquire);
  for (;;) {
    Word w = Word::Of(seen);
    if (w.round != round_ || w.came == all()) return false;
    marked_ = true;
    w.came &= static_cast<uint8_t>(~me());
    w.left |= me();
    if (w.left == all()) w.left = 0;
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
void MeetingOfMany::Sleep(uint32_t seen, double timeout_s) {
  auto& sleepers = n_->arena(0).words().express_sleepers;
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  (void)transport::SleepOnWord(transport::LowHalf(word()), seen, timeout_s);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

// A sleeper has to look when all have come, or when a rank has left.
void MeetingOfMany::WakeSleepers() {
  if (n_->arena(0).words().express_sleepers.load(std::memory_order_seq_cst) == 0) return;
  transport::WakeSleepersOn(transport::LowHalf(word()), n_->size());
}

void MeetingOfMany::Forget() {
  if (!marked_) return;
  marked_ = false;
  uint64_t seen = word().load(std::memory_order_acquire);
  Word w = Word::Of(seen);
  if (w.round != round_ || w.came != 0) return;
  w.left = 0;
  word().compare_exchange_strong(seen, w.bits(), std::memory_order_acq_rel);  // if it fails, there is news already
}

}  // namespace hvd::engine
