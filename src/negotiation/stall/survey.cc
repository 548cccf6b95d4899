#include "negotiation/stall/survey.h"

namespace hvd::negotiation {
namespace {

StalledTally StalledOf(const Request& q, double since) {
  return {{q.process_set, q.name}, q.type, since, q.group_hash, q.group_size};
}

const uint64_t* MaskOf(NameView key, const Marks& marks) {
  if (const Tally* t = marks.tallies().Find(key)) return t->mask.data();
  const int32_t id = marks.cache().IdOf(key);
  return id >= 0 ? marks.cache().mask(static_cast<uint32_t>(id)) : nullptr;
}

}  // namespace

std::vector<StalledTally> Incomplete(const Marks& marks) {
  std::vector<StalledTally> list;
  for (uint32_t id = 0; id < marks.cache().size(); ++id) {
    const CachedRequest& s = marks.cache().at(id);
    if (s.state == CachedRequest::kPartial) list.push_back(StalledOf(*s.request, s.since));
  }
  for (const auto& [key, t] : marks.tallies().all()) {
    if (t.complete) continue;
    StalledTally& stalled = list.emplace_back(StalledTally{key, t.type, t.since, 0, 0});
    for (const Part& p : t.parts) {
      if (p.request) stalled = StalledOf(*p.request, t.since);
    }
  }
  return list;
}

std::optional<StalledTally> OldestOwn(const Marks& marks) {
  std::optional<StalledTally> oldest;
  const auto consider = [&](NameView key, OpType type, double since) {
    if (oldest && oldest->since <= since) return;
    oldest = StalledTally{{key.set, std::string(key.name)}, type, since, 0, 0};
  };
  for (uint32_t id = 0; id < marks.cache().size(); ++id) {
    const CachedRequest& s = marks.cache().at(id);
    if (s.request && s.own_ticket != 0) consider(s.request->key(), s.request->type, s.since);
  }
  for (const auto& [key, t] : marks.tallies().all()) {
    if (t.own_ticket != 0) consider(key, t.type, t.since);
  }
  return oldest;
}

StallState StateOf(NameView key, const Marks& marks, const SetTable& sets, const Place& place) {
  StallState state;
  if (!sets.FindUsable(key.set)) return state;
  const uint64_t* mask = MaskOf(key, marks);
  const SourceMask need = sets.NeedOf(key);
  for (int source = 0; source < place.sources(); ++source) {
    if (mask && HasSource(mask, source)) {
      state.present = true;
    } else if (HasSource(need, source)) {
      if (source == 0) {
        state.own_missing = true;
      } else {
        state.missing.push_back(place.rank_of(source));
      }
    }
  }
  return state;
}

}  // namespace hvd::negotiation
