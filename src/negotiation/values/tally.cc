#include "negotiation/values/tally.h"

#include <algorithm>

#include "negotiation/values/signature.h"

namespace hvd::negotiation {

bool Tally::DropSources(const std::function<bool(const Part&)>& stale) {
  std::vector<int> dropped;
  for (const Part& p : parts) {
    if (stale(p)) dropped.push_back(p.source);
  }
  if (dropped.empty()) return false;
  std::erase_if(parts,
                [&](const Part& p) { return std::find(dropped.begin(), dropped.end(), p.source) != dropped.end(); });
  for (int source : dropped) DropSource(&mask, source);
  complete = false;
  return true;
}

RankSet Tally::Contributors() const {
  RankSet ranks;
  for (const Part& p : parts) ranks.AddAll(p.ranks);
  return ranks;
}

std::vector<Part> Tally::Merged() const {
  std::vector<Part> merged;
  for (const Part& p : parts) {
    auto same = [&](const Part& q) {
      if (!p.request || !q.request)
        return !p.request && !q.request && p.refusal == q.refusal && p.refused_group == q.refused_group;
      return p.id == q.id && p.request->transient == q.request->transient &&
             (p.request == q.request || SameSignature(*p.request, *q.request));
    };
    auto it = std::find_if(merged.begin(), merged.end(), same);
    if (it == merged.end()) {
      merged.push_back(p);
    } else {
      it->ranks.AddAll(p.ranks);
    }
  }
  return merged;
}

Tally& TallyTable::Create(NameView key, OpType type, int words, double now) {
  Tally& t = map_[NameKey{key.set, std::string(key.name)}];
  t.key = NameKey{key.set, std::string(key.name)};
  t.type = type;
  t.mask.assign(words, 0);
  t.since = now;
  return t;
}

std::vector<NameKey> TallyTable::NamesOf(int process_set) const {
  std::vector<NameKey> names;
  for (const auto& [key, tally] : map_) {
    if (key.set == process_set) names.push_back(key);
  }
  std::sort(names.begin(), names.end(), [](const NameKey& a, const NameKey& b) { return a.name < b.name; });
  return names;
}

}  // namespace hvd::negotiation
