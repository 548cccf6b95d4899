#include "engine/express/meeting.h"
#include "transport/futex.h"

namespace hvd::engine {

// The word of a rank: the last round that has happened there, and whether the other has left the next one. Rounds are
// counted modulo 2^16: the other is at most one behind. `changes` counts those of the mark: a decision fails if there
// was one since the rank looked.
struct MeetingOfTwo::Word {
  uint16_t happened, left;
  bool marked;
  uint32_t changes;  // 31 bits

  static Word Of(uint64_t bits) {
    return {static_cast<uint16_t>(bits), static_cast<uint16_t>(bits >> 16), (bits >> 32 & 1) != 0,
            static_cast<uint32_t>(bits >> 33)};
  }
  uint64_t bits() const {
    return static_cast<uint64_t>(changes) << 33 | static_cast<uint64_t>(marked) << 32 |
           static_cast<uint64_t>(left) << 16 | happened;
  }
  bool has_left(uint64_t round) const { return marked && left == static_cast<uint16_t>(round); }
  Word WithMark(uint64_t round) const { return {happened, static_cast<uint16_t>(round), true, changes + 1}; }
  Word WithoutMark() const { return {happened, left, false, changes + 1}; }
  Word Happened(uint64_t round) const { return {static_cast<uint16_t>(round), left, marked, changes}; }
};

std::atomic<uint64_t>& MeetingOfTwo::offer(int local, uint64_t round) const {
  return *reinterpret_cast<std::atomic<uint64_t>*>(n_->arena(local).express(static_cast<int>(round % 2)));
}

bool MeetingOfTwo::Come(uint64_t round, uint32_t, Patience* patience) {
  // The other has not seen the mark, which was meant for another request.
  if (marked_) Forget();
  bool offering = false;
  for (;;) {
    uint64_t seen = word(n_->self()).load(std::memory_order_acquire);
    const Word w = Word::Of(seen);
    if (w.has_left(round)) {
      // The offer first: the other may come again as soon as its mark is gone.
      if (offering) offer(n_->self(), round).store(0, std::memory_order_release);
      offering = false;
      if (word(n_->self()).compare_exchange_strong(seen, w.WithoutMark().bits())) return false;
      continue;  // the other has taken it away, and may have seen the offer: it stands
    }
    if (!offering) Offer(round);
    offering = true;
    if (offer(other(), round).load(std::memory_order_acquire) == round) {
      if (word(n_->self()).compare_exchange_strong(seen, w.Happened(round).bits())) return true;
      continue;  // the other has left
    }
    if (!patience->Again([&](double timeout_s) { Sleep(round, timeout_s); })) return !Leave(round);
  }
}

// False: too late, it has happened.
bool MeetingOfTwo::Leave(uint64_t round) {
  offer(n_->self(), round).store(0, std::memory_order_release);
  uint64_t theirs = word(other()).load(std::memory_order_acquire);
  while (Word::Of(theirs).happened != static_cast<uint16_t>(round)) {
    if (word(other()).compare_exchange_weak(theirs, Word::Of(theirs).WithMark(round).bits())) {
      marked_ = true;
      return true;
    }
  }
  uint64_t mine = word(n_->self()).load(std::memory_order_relaxed);
  while (!word(n_->self()).compare_exchange_weak(mine, Word::Of(mine).Happened(round).bits())) continue;
  return false;
}

void MeetingOfTwo::Forget() {
  if (!marked_) return;
  marked_ = false;
  uint64_t theirs = word(other()).load(std::memory_order_acquire);
  while (Word::Of(theirs).marked &&
         !word(other()).compare_exchange_weak(theirs, Word::Of(theirs).WithoutMark().bits())) {
    continue;
  }
}

void MeetingOfTwo::Offer(uint64_t round) {
  std::atomic<uint64_t>& mine = offer(n_->self(), round);
  if (!n_->cores_are_shared()) {
    mine.store(round, std::memory_order_release);
    return;
  }
  mine.store(round, std::memory_order_seq_cst);
  if (n_->own().words().express_sleepers.load(std::memory_order_seq_cst) == 0) return;
  transport::WakeSleepersOn(transport::LowHalf(mine), 1);
}

// Until the other offers. Counted, so that nobody makes a system call for a sleeper that is not there: who offers sees
// the sleeper, or the sleeper sees the offer. A rank that is killed here stays in the count, which costs the other some
// calls for nothing.
void MeetingOfTwo::Sleep(uint64_t round, double timeout_s) {
  const std::atomic<uint64_t>& theirs = offer(other(), round);
  std::atomic<uint32_t>& sleepers = n_->arena(other()).words().express_sleepers;
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint64_t seen = theirs.load(std::memory_order_seq_cst);
  if (seen != round) (void)transport::SleepOnWord(transport::LowHalf(theirs), static_cast<uint32_t>(seen), timeout_s);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace hvd::engine
