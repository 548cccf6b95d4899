// Joins: the ranks below this node that have joined, until all ranks have. A joined rank counts as one that contributes
// nothing to the operations of set 0.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "negotiation/frames/outbox.h"
#include "negotiation/state/marks.h"
#include "negotiation/state/set_table.h"
#include "negotiation/values/rank_set.h"

namespace hvd::negotiation {

class Joins {
 public:
  Joins(const Place* place, SetTable* sets, Marks* marks, Outbox* out)
      : place_(*place), sets_(sets), marks_(marks), out_(out) {}

  bool own() const { return own_; }
  const RankSet& ranks() const { return ranks_; }
  // At the root: all ranks of the job have joined, and the log does not say so yet.
  bool complete() const { return all_reported_ && own_; }
  int last_rank() const { return last_rank_; }

  void JoinSelf(uint64_t ticket, double now);
  // From the child behind `source`: one rank, or all of its ranks. An error says why it cannot be.
  Status FromChild(int source, int rank);
  Status AllFromChild(int source, double now);

  // The join is over: ended by the log, or failed with the set. Returns the own ticket.
  uint64_t End();
  uint64_t Fail();

 private:
  void Joined(int rank);
  void SourceJoined(int source, double now);

  const Place& place_;
  SetTable* sets_;
  Marks* marks_;
  Outbox* out_;
  RankSet ranks_;  // of the subtree
  int last_rank_ = -1;
  bool own_ = false;
  uint64_t ticket_ = 0;
  bool all_reported_ = false;  // every source has joined, and the parent knows
};

}  // namespace hvd::negotiation
