#include "negotiation/state/set_table.h"

#include "negotiation/values/new_set.h"
#include "negotiation/values/pair.h"

namespace hvd::negotiation {

SetTable::SetTable(const Place* place) : place_(place) { Add(RankSet::Range(0, place->size - 1)); }

void SetTable::Add(RankSet ranks) {
  ProcessSet set;
  set.own = ranks.Contains(place_->rank);
  set.members = SourcesOf(ranks);
  set.need = set.members;
  set.ranks = std::move(ranks);
  sets_.push_back(std::make_unique<ProcessSet>(std::move(set)));
}

RankSet SetTable::MembersOf(NameView key) const {
  const RankSet& all = at(key.set).ranks;
  if (const std::optional<Pair> pair = PairOf(key.name)) return all.And(pair->ranks());
  return NamesNewSet(key.name) ? all.And(MembersOfNewSet(key.name)) : all;
}

bool SetTable::Fits(NameView key) const {
  if (NamesNewSet(key.name)) {
    const RankSet named = MembersOfNewSet(key.name);
    return key.set == 0 && !named.empty() && MembersOf(key) == named;
  }
  return !PairOf(key.name) || MembersOf(key).count() == 2;
}

SourceMask SetTable::NeedOf(NameView key) const {
  return PairOf(key.name) || NamesNewSet(key.name) ? SourcesOf(MembersOf(key)) : at(key.set).need;
}

SourceMask SetTable::SourcesOf(const RankSet& ranks) const {
  SourceMask sources(MaskWords(*place_), 0);
  for (int s = 0; s < place_->sources(); ++s) {
    if (!place_->below[s].And(ranks).empty()) AddSource(sources.data(), s);
  }
  return sources;
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
