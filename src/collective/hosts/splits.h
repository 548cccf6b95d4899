// Splits: how many rows each member sends to each other in a two-level alltoall, as far as this member needs to know;
// and whether it pays to forward.
//
// The *wards* of owner c on a host are the members with local indices c, c + k, c + 2k and so on (k owners): what
// others send them across hosts arrives there. The first ward is the owner itself; there are more on larger hosts only.
#pragma once

#include <vector>

#include "base/task.h"
#include "collective/batch.h"
#include "collective/hosts/between.h"
#include "collective/hosts/inside.h"
#include "collective/hosts/roles.h"

namespace hvd::collective::hosts {

class Splits {
 public:
  // Both outlive it.
  Splits(const Batch& batch, const Roles& roles, int members);

  // The members of a host tell one another their splits; every owner tells its counterparts what they get for their
  // wards; and where some members own nothing, all learn what the owners received. 1 step of 8 n bytes per tensor
  // inside, h-1 messages between, at most 1 step more inside.
  Task Agree(Between& between, Inside& inside);

  size_t row_bytes(size_t tensor) const { return batch_.tensors[tensor].row_elems * SizeOf(batch_.dtype); }
  size_t tensors() const { return batch_.tensors.size(); }
  // From a member of this host to any member, of one tensor or of all.
  int64_t rows(int local, int member, size_t tensor) const {
    return local_[(local * tensors() + tensor) * n_ + member];
  }
  size_t bytes(int local, int member) const;
  // From member `i` of another host to ward `w` of an owner of this one.
  int64_t arriving_rows(int owner, int host, int i, int w, size_t tensor) const {
    return sent_[owner][OffsetOf(owner, host) + kFacts + (i * wards(roles_.host, owner) + w) * tensors() + tensor];
  }
  size_t arriving_bytes(int owner, int host, int i, int w) const;
  // To this member, by member.
  std::vector<int64_t> ReceivedRows(size_t tensor) const;

  int wards(int host, int owner) const { return (roles_.locals_of(host) - owner + roles_.owners - 1) / roles_.owners; }
  int ward(int host, int owner, int w) const { return roles_.members[host][owner + w * roles_.owners]; }
  // What `local` gives owner `owner` to be sent to its counterpart on that host.
  size_t forwarded_bytes(int local, int owner, int host) const;

  // Equal on all members: they know how much every host sends, and the most that one of its owners would forward.
  bool PaysToForward() const;

 private:
  static constexpr size_t kFacts = 2;
  // Where the part of a host begins in what an owner received; in numbers.
  size_t OffsetOf(int owner, int host) const;
  void StartTelling(Between& between);
  std::vector<int64_t> OwnFacts() const;

  const Batch& batch_;
  const Roles& roles_;
  const int n_;
  std::vector<int64_t> local_;              // [local][tensor][member]
  std::vector<std::vector<int64_t>> sent_;  // by owner of this host: per other host its facts, then [i][ward][tensor]
  std::vector<int64_t> facts_;
  std::vector<int64_t> telling_;
};

}  // namespace hvd::collective::hosts
