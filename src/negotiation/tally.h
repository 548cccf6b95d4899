// Tally: who has contributed what to one named request, where cached marks do not tell it all: new names, changed
// requests, refusals, joined ranks. A *part* is what came from one source; a source that must take back anything sends
// all of it again, so parts go as a whole. Used by the node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "negotiation/name_key.h"
#include "negotiation/rank_set.h"
#include "negotiation/request.h"
#include "negotiation/validate.h"

namespace hvd {

struct Part {
  int source = 0;
  std::shared_ptr<const Request> request;  // null: a refusal
  std::string refusal;
  uint64_t refused_group = 0;  // of a refusal: the group that it refuses
  int32_t id = -1;             // >= 0: it is what this cached id means
  RankSet ranks;

  uint64_t group_hash() const { return request ? request->group_hash : refused_group; }
};

struct Tally {
  NameKey key;
  OpType type = OpType::kAllreduce;
  std::vector<uint64_t> mask;  // sources that have contributed
  std::vector<Part> parts;
  double since = 0;
  uint64_t own_ticket = 0;  // 0: no own entry (a refusal, or none)
  bool own_refusal = false;
  bool complete = false;  // passed up, or handed to the coordinator

  bool Has(int source) const { return (mask[source / 64] >> (source % 64)) & 1; }
  void Mark(int source) { mask[source / 64] |= uint64_t{1} << (source % 64); }
  bool Covers(const std::vector<uint64_t>& need) const {
    for (size_t w = 0; w < need.size(); ++w) {
      if ((mask[w] & need[w]) != need[w]) return false;
    }
    return true;
  }
  bool empty() const { return parts.empty(); }
  void Add(Part part) {
    Mark(part.source);
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
  Tally* Find(NameView key) {
    auto it = map_.find(key);
    return it == map_.end() ? nullptr : &it->second;
  }
  Tally& Create(NameView key, OpType type, int words, double now);
  void Erase(NameView key) {
    auto it = map_.find(key);
    if (it != map_.end()) map_.erase(it);
  }
  size_t size() const { return map_.size(); }
  NameMap<Tally>& all() { return map_; }
  // Names of a process set, in an order that does not depend on hashing.
  std::vector<NameKey> NamesOf(int process_set) const;

 private:
  NameMap<Tally> map_;
};

}  // namespace hvd
