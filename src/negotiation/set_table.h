// SetTable: the process sets as one node knows them: members, and which of its sources must contribute to a tally of
// the set. Sources are bits of a mask of `words` 64-bit words. Used by the node; changed only by log records, so equal
// on all ranks at the same place of the log.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "negotiation/place.h"

namespace hvd {

struct ProcessSet {
  RankSet ranks;
  uint64_t valid_from = 0;        // contributions sent before this version belong to an earlier set of the same id
  Status dead;                    // not ok: a member has left
  bool own = false;               // this rank is a member
  std::vector<uint64_t> members;  // sources with members below
  std::vector<uint64_t> need;     // members without those whose ranks have all joined
};

class SetTable {
 public:
  SetTable(const Place* place, int words);

  int words() const { return words_; }
  ProcessSet* Find(int id) {
    return id >= 0 && id < static_cast<int>(sets_.size()) && sets_[id] ? &*sets_[id] : nullptr;
  }
  const ProcessSet* Find(int id) const { return const_cast<SetTable*>(this)->Find(id); }
  ProcessSet& at(int id) { return *sets_[id]; }
  void Add(int id, RankSet ranks, uint64_t version);
  void Remove(int id) { sets_[id].reset(); }
  int FreeId() const;
  int IdOf(const RankSet& ranks) const;  // -1: none
  std::vector<int> Ids() const;

  // Joined ranks need not contribute to set 0.
  void SourceJoined(int source) { sets_[0]->need[source / 64] &= ~(uint64_t{1} << (source % 64)); }
  void ResetJoined() { sets_[0]->need = sets_[0]->members; }

 private:
  const Place* place_;
  int words_;
  std::vector<std::optional<ProcessSet>> sets_;
};

}  // namespace hvd
