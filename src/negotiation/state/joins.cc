#include "negotiation/state/joins.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hvd::negotiation {

void Joins::Joined(int rank) {
  ranks_.Add(rank);
  last_rank_ = rank;
  if (!place_.root()) out_->Up(UpRecord::kJoined).Varint(static_cast<uint32_t>(rank));
}

// What this completes goes up before the news that all have joined.
void Joins::SourceJoined(int source, double now) {
  sets_->SourceJoined(source);
  marks_->RecheckGlobalSet(now);
  const SourceMask& need = sets_->at(0).need;
  if (all_reported_ || std::any_of(need.begin(), need.end(), [](uint64_t word) { return word != 0; })) return;
  all_reported_ = true;
  if (!place_.root()) out_->Up(UpRecord::kAllJoined);
}

void Joins::JoinSelf(uint64_t ticket, double now) {
  own_ = true;
  ticket_ = ticket;
  Joined(place_.rank);
  SourceJoined(0, now);
}

Status Joins::FromChild(int source, int rank) {
  if (!place_.below[source].Contains(rank) || ranks_.Contains(rank)) {
    return {Code::kInternal, "it says that rank " + std::to_string(rank) + " has joined, which cannot be"};
  }
  Joined(rank);
  return {};
}

Status Joins::AllFromChild(int source, double now) {
  if (!place_.below[source].Minus(ranks_).empty()) {
    return {Code::kInternal, "it says that all ranks below have joined, which cannot be"};
  }
  SourceJoined(source, now);
  return {};
}

uint64_t Joins::End() {
  all_reported_ = false;
  ranks_ = {};
  sets_->ResetJoined();
  return Fail();
}

uint64_t Joins::Fail() {
  own_ = false;
  return std::exchange(ticket_, 0);
}

}  // namespace hvd::negotiation
