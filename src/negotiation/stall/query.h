// StallQuery: the root's question to all ranks, whether they have submitted what waits, and their answers. Pure.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "negotiation/stall/records.h"
#include "negotiation/stall/stalled.h"
#include "negotiation/values/rank_set.h"

namespace hvd::negotiation {

class StallQuery {
 public:
  bool running() const { return running_; }
  const std::vector<StalledTally>& asked() const { return asked_; }
  double begun_at() const { return begun_at_; }
  double deadline() const { return running_ ? deadline_ : kNever; }

  // Returns the question to send.
  StallQuestion Begin(std::vector<StalledTally> tallies, double now, double patience_s);
  // It is over, and the answers about it are outdated.
  void Settled(NameView key);
  // False: it answers another question.
  bool Answer(uint64_t number, int rank, std::vector<StallState> states);
  // The root's own answer; a later one replaces it.
  void AnswerSelf(std::vector<StallState> states) { (void)Answer(number_, 0, std::move(states)); }
  bool AllAnswered() const;  // no rank that matters is silent
  void End() { running_ = false; }

  // What is known of a tally that was asked about.
  struct Missing {
    RankSet ranks;
    RankSet silent;  // these have not answered: they, and what is below them
    bool present = false;

    bool waits() const { return !silent.empty() || (present && !ranks.empty()); }
  };
  Missing Find(size_t index) const;

 private:
  bool running_ = false;
  uint64_t number_ = 0;
  double begun_at_ = 0, deadline_ = 0;
  std::vector<StalledTally> asked_;
  std::vector<char> settled_;  // per asked
  std::unordered_map<int, std::vector<StallState>> answers_;
};

}  // namespace hvd::negotiation
