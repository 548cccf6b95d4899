// Tally: which rank has contributed what to one named request, where cached marks are not enough: new names, changed
// requests, refusals, joined ranks. A *part* is what came from one source; a source that must take back anything sends
// all of it again, so parts go as a whole. Used by Marks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "negotiation/values/rank_set.h"
#include "negotiation/values/request.h"
#include "negotiation/values/source_mask.h"

namespace hvd::negotiation {

struct Part {
  int source = 0;
  std::shared_ptr<const Request> request;  // null: a refusal
  std::string refusal;
  uint64_t refused_group = 0;  // of a refusal: the group that it refuses
  int32_t id = -1;             // >= 0: the request is what this cached id means
  RankSet ranks;

  uint64_t group_hash() const { return request ? request->group_hash : refused_group; }
};

struct Tally {
  NameKey key;
  OpType type = OpType::kAllreduce;
  SourceMask mask;  // sources that have contributed
  std::vector<Part> parts;
  double since = 0;
  uint64_t own_ticket = 0;  // 0: no own entry (a refusal, or none)
  bool own_refusal = false;
  bool complete = false;  // passed up, or at the root to be decided

  bool Has(int source) const { return HasSource(mask, source); }
  bool empty() const { return parts.empty(); }
  void Add(Part part) {
    AddSource(mask.data(), part.source);
    parts.push_back(std::move(part));
  }
  // Removes every source of which any part is `stale`; returns whether one was removed.
  bool DropSources(const std::function<bool(const Part&)>& stale);
  RankSet Contributors() const;
  // Equal contributions as one.
  std::vector<Part> Merged() const;
};

class TallyTable {
 public:
  const Tally* Find(NameView key) const {
    auto it = map_.find(key);
    return it == map_.end() ? nullptr : &it->second;
  }
  Tally* Find(NameView key) { return const_cast<Tally*>(std::as_const(*this).Find(key)); }
  Tally& Create(NameView key, OpType type, int words, double now);
  void Erase(NameView key) {
    auto it = map_.find(key);
    if (it != map_.end()) map_.erase(it);
  }
  const NameMap<Tally>& all() const { return map_; }
  // Names of a process set, in an order that does not depend on hashing.
  std::vector<NameKey> NamesOf(int process_set) const;

 private:
  NameMap<Tally> map_;
};

}  // namespace hvd::negotiation
