// SetTable: the process sets as one node knows them: members, and which of its sources must contribute to a tally of
// the set. An id is never given to a second set: names, counters and messages under way belong to one set for good.
// Which sets there are is changed only by log records, so equal on all ranks at the same place of the log.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "negotiation/values/request.h"
#include "negotiation/values/source_mask.h"

namespace hvd::negotiation {

struct ProcessSet {
  RankSet ranks;
  Status dead;         // not ok: a member has left
  bool own = false;    // this rank is a member
  SourceMask members;  // sources with members below
  SourceMask need;     // members without those whose ranks have all joined
};

class SetTable {
 public:
  explicit SetTable(const Place* place);  // which must outlive this

  ProcessSet* Find(int id) { return id >= 0 && id < next_id() ? sets_[id].get() : nullptr; }
  const ProcessSet* Find(int id) const { return const_cast<SetTable*>(this)->Find(id); }
  // The set, if operations can run in it.
  const ProcessSet* FindUsable(int id) const {
    const ProcessSet* set = Find(id);
    return set && set->dead.ok() ? set : nullptr;
  }
  ProcessSet& at(int id) { return *sets_[id]; }
  const ProcessSet& at(int id) const { return *sets_[id]; }
  void Add(RankSet ranks);  // its id is next_id()
  void Remove(int id) { sets_[id].reset(); }
  // The ranks that must contribute to the operation of this name: the members, the two of a send, or those of a new
  // set.
  RankSet MembersOf(NameView key) const;
  // False: it names ranks, of a send or of a new set, that are no such members.
  bool Fits(NameView key) const;
  // The sources that must mark it; of a send also those whose ranks have joined.
  SourceMask NeedOf(NameView key) const;
  int next_id() const { return static_cast<int>(sets_.size()); }
  int IdOf(const RankSet& ranks) const;  // -1: none
  std::vector<int> Ids() const;

  // Joined ranks need not contribute to set 0.
  void SourceJoined(int source) {
    DropSource(&sets_[0]->need, source);
    any_joined_ = true;
  }
  void ResetJoined() {
    sets_[0]->need = sets_[0]->members;
    any_joined_ = false;
  }
  bool any_joined() const { return any_joined_; }  // set 0 needs fewer than its members

 private:
  SourceMask SourcesOf(const RankSet& ranks) const;  // with some of them below

  const Place* place_;
  std::vector<std::unique_ptr<ProcessSet>> sets_;  // null: removed
  bool any_joined_ = false;
};

}  // namespace hvd::negotiation
