// Roles: which member does what where a group spans several hosts, some of them with several members that share memory.
// Pure; equal on all members but for what says "own".
#pragma once

#include <algorithm>
#include <vector>

#include "collective/batch.h"
#include "collective/channels/plan_run.h"
#include "collective/slices.h"

namespace hvd::collective::hosts {

// As many members of every host as the smallest host has are *owners*: the first ones, whose counterparts on the other
// hosts have the same local index. Only counterparts talk across hosts, so a member needs a connection to one member of
// every other host.
struct Roles {
  std::vector<std::vector<int>> members;  // of every host, ascending; hosts by their lowest member
  int host = 0;                           // own place among them
  int me = 0;                             // own local index
  int owners = 1;
  channels::Team across;  // an owner and its counterparts, by host

  int hosts() const { return static_cast<int>(members.size()); }
  int locals() const { return static_cast<int>(members[host].size()); }
  int locals_of(int h) const { return static_cast<int>(members[h].size()); }
  bool owner() const { return me < owners; }
  // For little data: fewer flows.
  void Limit(int most) { owners = std::clamp(most, 1, owners); }
};

Roles RolesOf(const Group& group);

// The number of owners that is worth it for a vector of this many bytes: another message costs as much as about 64 KB
// (schedule.cc).
inline int OwnersFor(size_t bytes) {
  constexpr size_t kLeast = 64 << 10;
  return static_cast<int>(std::clamp<size_t>(bytes / kLeast, 1, 1024));
}

}  // namespace hvd::collective::hosts
