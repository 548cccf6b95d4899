#include "negotiation/set_table.h"

namespace hvd::negotiation {

SetTable::SetTable(const Place* place) : place_(place) { Add(RankSet::Range(0, place->size - 1)); }

void SetTable::Add(RankSet ranks) {
  ProcessSet set;
  set.own = ranks.Contains(place_->rank);
  set.members.assign(MaskWords(*place_), 0);
  for (int s = 0; s < place_->sources(); ++s) {
    if (!place_->below[s].And(ranks).empty()) AddSource(set.members.data(), s);
  }
  set.need = set.members;
  set.ranks = std::move(ranks);
  sets_.push_back(std::make_unique<ProcessSet>(std::move(set)));
}

int SetTable::IdOf(const RankSet& ranks) const {
  for (int id = 0; id < static_cast<int>(sets_.size()); ++id) {
    if (sets_[id] && sets_[id]->ranks == ranks) return id;
  }
  return -1;
}

std::vector<int> SetTable::Ids() const {
  std::vector<int> ids;
  for (int id = 0; id < static_cast<int>(sets_.size()); ++id) {
    if (sets_[id]) ids.push_back(id);
  }
  return ids;
}

}  // namespace hvd::negotiation
