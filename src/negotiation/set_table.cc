#include "negotiation/set_table.h"

namespace hvd {

SetTable::SetTable(const Place* place, int words) : place_(place), words_(words) {
  Add(0, RankSet::Range(0, place->size - 1), 0);
}

void SetTable::Add(int id, RankSet ranks, uint64_t version) {
  if (id >= static_cast<int>(sets_.size())) sets_.resize(id + 1);
  ProcessSet set;
  set.valid_from = version;
  set.own = ranks.Contains(place_->rank);
  set.members.assign(words_, 0);
  for (int s = 0; s < place_->sources(); ++s) {
    if (!place_->below[s].And(ranks).empty()) set.members[s / 64] |= uint64_t{1} << (s % 64);
  }
  set.need = set.members;
  set.ranks = std::move(ranks);
  sets_[id] = std::move(set);
}

int SetTable::FreeId() const {
  int id = 0;
  while (Find(id)) ++id;
  return id;
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

}  // namespace hvd
