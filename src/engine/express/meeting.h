// Meeting: the part of Express that decides whether an operation happens: on all ranks or on none, however they come
// and go. A rank that has stored what it brings comes; it waits as long as its patience lasts, and then leaves if not
// all have come.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/express/patience.h"
#include "transport/neighbours.h"

namespace hvd::engine {

class Meeting {
 public:
  virtual ~Meeting() = default;
  // True: all ranks have come to this round. False, on all ranks: it has not happened, and the next one that this rank
  // comes to has the same number.
  // ident: a part of the fingerprint, to tell early that requests differ.
  virtual bool Come(uint64_t round, uint32_t ident, Patience* patience) = 0;
  // A request that had to go the long way is done: a rank that comes now must not take the mark of this rank for a new
  // one.
  virtual void Forget() = 0;
};

// Two ranks: one transfer of a cache line each way.
//
// Each rank offers: it stores the number of the round in front of what it brings. A rank that sees the other's offer
// decides: it writes into a word of its own that the round has happened. This word is the only one that both change: a
// rank that leaves takes its offer back and then marks the word of the other, unless the round is there already; then
// it has happened here too. So the order of the changes of that word decides. A rank that finds itself marked leaves as
// well, and takes the mark away. No rank waits for a step of the other.
class MeetingOfTwo final : public Meeting {
 public:
  explicit MeetingOfTwo(transport::Neighbours* neighbours) : n_(neighbours) {}

  bool Come(uint64_t round, uint32_t ident, Patience* patience) override;
  void Forget() override;

 private:
  struct Word;
  bool Leave(uint64_t round);
  void Offer(uint64_t round);
  void Sleep(uint64_t round, double timeout_s);
  int other() const { return 1 - n_->self(); }
  std::atomic<uint64_t>& word(int local) const { return n_->arena(local).words().express; }
  std::atomic<uint64_t>& offer(int local, uint64_t round) const;

  transport::Neighbours* const n_;
  bool marked_ = false;  // this rank may have a mark in the other's word
};

// More ranks: one word, in the first rank's arena, holds who has come and who has left.
class MeetingOfMany final : public Meeting {
 public:
  explicit MeetingOfMany(transport::Neighbours* neighbours) : n_(neighbours) {}

  bool Come(uint64_t round, uint32_t ident, Patience* patience) override;
  void Forget() override;

 private:
  struct Word;
  bool Enter(uint32_t ident);
  bool Await(Patience* patience);
  bool Leave();
  void Sleep(uint32_t seen, double timeout_s);
  void WakeSleepers();
  std::atomic<uint64_t>& word() const { return n_->arena(0).words().express; }
  uint8_t me() const { return static_cast<uint8_t>(1u << n_->self()); }
  uint8_t all() const { return static_cast<uint8_t>((1u << n_->size()) - 1); }

  transport::Neighbours* const n_;
  uint16_t round_ = 0;   // that this rank comes to; nobody can be two behind
  bool marked_ = false;  // this rank has left a request, and may still be in the word as one who has
};

}  // namespace hvd::engine
