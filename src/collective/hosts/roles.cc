#include "collective/hosts/roles.h"

#include "collective/hosts/collectives.h"

namespace hvd::collective::hosts {

Roles RolesOf(const Group& group) {
  Roles roles;
  std::vector<int> numbers;
  for (int m = 0; m < group.size(); ++m) {
    const size_t h = static_cast<size_t>(std::find(numbers.begin(), numbers.end(), group.host_of[m]) - numbers.begin());
    if (h == numbers.size()) {
      numbers.push_back(group.host_of[m]);
      roles.members.emplace_back();
    }
    if (m == group.index) {
      roles.host = static_cast<int>(h);
      roles.me = static_cast<int>(roles.members[h].size());
    }
    roles.members[h].push_back(m);
  }
  size_t smallest = roles.members[0].size();
  for (const auto& h : roles.members) smallest = std::min(smallest, h.size());
  roles.owners = static_cast<int>(smallest);
  if (!roles.owner()) return roles;
  roles.across.rank = group.ranks[group.index];
  roles.across.index = roles.host;
  for (const auto& h : roles.members) {
    roles.across.member.push_back(h[roles.me]);
    roles.across.channels.push_back(group.channels[h[roles.me]]);
  }
  return roles;
}

bool Applies(const Group& group) {
  std::vector<int> hosts = group.host_of;
  std::sort(hosts.begin(), hosts.end());
  const auto different = std::unique(hosts.begin(), hosts.end()) - hosts.begin();
  return different > 1 && different < group.size();
}

}  // namespace hvd::collective::hosts
