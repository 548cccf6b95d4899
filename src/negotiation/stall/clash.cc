#include "negotiation/stall/clash.h"

#include <map>
#include <string>
#include <utility>

#include "negotiation/values/op_text.h"

namespace hvd::negotiation {
namespace {

// What some ranks have made of a name.
struct Side {
  OpType type;
  int32_t group_size;
  RankSet ranks;
  std::vector<const StalledTally*> tallies;  // the members of the group, or one
};
using Sides = std::map<std::pair<OpType, uint64_t>, Side>;  // by operation and group

bool Exclude(const Sides& sides) {
  if (sides.size() < 2) return false;
  RankSet seen;
  for (const auto& [what, side] : sides) {
    if (!seen.And(side.ranks).empty()) return false;
    seen.AddAll(side.ranks);
  }
  return true;
}

std::string Described(const std::string& name, const Sides& sides) {
  std::string text = "'" + name + "': ";
  for (const auto& [what, side] : sides) {
    if (&side != &sides.begin()->second) text += ", ";
    text += side.ranks.Text() + " called " + OpText(side.type);
    if (side.group_size > 0) text += " with a group of " + std::to_string(side.group_size);
  }
  text +=
      ", and each waits for the others; all ranks must call the same operation with as many tensors under one name.";
  return text;
}

}  // namespace

std::vector<Clash> FindClashes(const std::vector<StalledTally>& tallies, const std::vector<RankSet>& submitters) {
  std::map<std::pair<int, std::string>, Sides> by_name;
  for (size_t i = 0; i < tallies.size(); ++i) {
    const StalledTally& t = tallies[i];
    const std::string name = UserName(t.type, t.key.name, t.group_size);
    if (name.empty() || submitters[i].empty()) continue;
    Sides& sides = by_name[{t.key.set, name}];
    Side& side = sides.try_emplace({t.type, t.group_hash}, Side{t.type, t.group_size, {}, {}}).first->second;
    side.ranks.AddAll(submitters[i]);
    side.tallies.push_back(&t);
  }
  std::vector<Clash> clashes;
  for (const auto& [key, sides] : by_name) {
    if (!Exclude(sides)) continue;
    Clash& clash = clashes.emplace_back(Clash{{Code::kMismatch, Described(key.second, sides)}, {}});
    for (const auto& [what, side] : sides) {
      for (const StalledTally* t : side.tallies) clash.tallies.push_back(*t);
    }
  }
  return clashes;
}

}  // namespace hvd::negotiation
