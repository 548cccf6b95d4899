#include "negotiation/stall/query.h"

namespace hvd::negotiation {

StallQuestion StallQuery::Begin(std::vector<StalledTally> tallies, double now, double patience_s) {
  asked_ = std::move(tallies);
  settled_.assign(asked_.size(), 0);
  answers_.clear();
  running_ = true;
  begun_at_ = now;
  deadline_ = now + patience_s;
  StallQuestion question;
  question.number = ++number_;
  for (const StalledTally& t : asked_) question.names.push_back(t.key);
  return question;
}

void StallQuery::Settled(NameView key) {
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (NameEqual()(asked_[i].key, key)) settled_[i] = 1;
  }
}

bool StallQuery::Answer(uint64_t number, int rank, std::vector<StallState> states) {
  if (!running_ || number != number_ || states.size() != asked_.size()) return false;
  answers_[rank] = std::move(states);
  return true;
}

StallQuery::Missing StallQuery::Find(size_t index) const {
  Missing found;
  if (settled_[index]) return found;
  std::vector<int> visit = {0};
  while (!visit.empty()) {
    const int rank = visit.back();
    visit.pop_back();
    const auto it = answers_.find(rank);
    if (it == answers_.end()) {
      found.silent.Add(rank);
      continue;
    }
    const StallState& s = it->second[index];
    found.present |= s.present;
    if (s.own_missing) found.ranks.Add(rank);
    for (const int child : s.missing) {
      if (child > rank) visit.push_back(child);  // a parent's rank is lower: this ends, whatever an answer says
    }
  }
  return found;
}

bool StallQuery::AllAnswered() const {
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (!Find(i).silent.empty()) return false;
  }
  return true;
}

}  // namespace hvd::negotiation
