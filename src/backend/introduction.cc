#include "backend/introduction.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace hvd::backend {
namespace {

using collective::Group;

std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

const char* LibraryOf(const DeviceFacts& facts) { return facts.is_rccl != 0 ? "RCCL" : "NCCL"; }

// "ranks 0, 1 and 5"
std::string RanksOf(const std::vector<int>& members, const Group& group) {
  std::string text = "ranks ";
  for (size_t i = 0; i < members.size(); ++i) {
    if (i > 0) text += i + 1 < members.size() ? ", " : " and ";
    text += std::to_string(group.ranks[members[i]]);
  }
  return text;
}

// Of members that use one GPU: which one, and a remedy, which depends on where they run and on whether their host has
// enough of them.
std::string OneGpu(const std::vector<int>& sharing, const std::vector<DeviceFacts>& facts, const Group& group) {
  const DeviceFacts& f = facts[sharing[0]];
  const std::string shown = f.visible == 1 ? "the only one" : "one of the " + std::to_string(f.visible);
  const std::string use = RanksOf(sharing, group) + " use one GPU (number " + std::to_string(f.ordinal) + ", " + shown +
                          " that the driver shows to rank " + std::to_string(group.ranks[sharing[0]]) + "), which " +
                          LibraryOf(f) + " refuses; ";
  const int host = group.host_of[sharing[0]];
  if (std::any_of(sharing.begin(), sharing.end(), [&](int m) { return group.host_of[m] != host; }))
    return use +
           "they count as different hosts (containers, virtual machines or executors): give each of these a GPU of its "
           "own";
  if (f.visible >= std::count(group.host_of.begin(), group.host_of.end(), host)) {
    return use +
           "give each rank its own GPU before its first tensor there, by torch.cuda.set_device(hvd.local_rank()), "
           "tf.config.set_visible_devices(gpus[hvd.local_rank()], \"GPU\") or "
           "jax.config.update(\"jax_cuda_visible_devices\", str(hvd.local_rank()))";
  }
  return use + "start no more ranks on a host than it has GPUs, and let CUDA_VISIBLE_DEVICES" +
         (f.is_rccl != 0 ? ", HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES" : "") + " hide none of them";
}

// Why the libraries of these members do not work together: the first that has none, or another one.
std::string WhyNotOneLibrary(const std::vector<int>& members, const std::vector<DeviceFacts>& facts,
                             const Group& group) {
  const auto rank = [&](int m) { return "rank " + std::to_string(group.ranks[m]); };
  const int first = members[0];
  for (const int m : members) {
    const DeviceFacts& f = facts[m];
    if (f.nccl_version == 0) return rank(m) + ": " + std::string(f.why_not, strnlen(f.why_not, sizeof f.why_not));
    if (f.is_rccl != facts[first].is_rccl) {
      return rank(first) + " has " + LibraryOf(facts[first]) + " and " + rank(m) + " has " + LibraryOf(f) +
             ", which do not work together";
    }
    if (f.nccl_version != facts[first].nccl_version) {
      return rank(first) + " has " + LibraryOf(f) + " " + VersionText(facts[first].nccl_version) + " and " + rank(m) +
             " has " + VersionText(f.nccl_version) + "; install one version everywhere";
    }
  }
  return "";
}

// Why NCCL cannot move what these members have.
std::string WhyNot(const std::vector<int>& members, const std::vector<DeviceFacts>& facts, const Group& group) {
  if (std::string why = WhyNotOneLibrary(members, facts, group); !why.empty()) return why;
  using Gpu = std::pair<int, std::array<std::byte, 16>>;
  std::map<Gpu, std::vector<int>> with, at;
  for (const int m : members) {
    const DeviceFacts& f = facts[m];
    // What AMD's GPUs say may be said by one of another host, too: some have but their place there.
    with[{f.is_rccl != 0 ? FirstOnHostOf(group, m) : 0, f.device}].push_back(m);
    at[{FirstOnHostOf(group, m), f.place}].push_back(m);
  }
  for (const auto& [_, sharing] : with) {
    if (sharing.size() > 1) return OneGpu(sharing, facts, group);
  }
  for (const auto& [_, sharing] : at) {
    if (sharing.size() == 1) continue;
    return RanksOf(sharing, group) + " use parts of one GPU (MIG), which " + LibraryOf(facts[sharing[0]]) +
           " treats as the same GPU and refuses";
  }
  return "";
}

// By the first member on each host.
std::map<int, std::vector<int>> MembersOfHosts(const Group& group) {
  std::map<int, std::vector<int>> members;
  for (int m = 0; m < group.size(); ++m) members[FirstOnHostOf(group, m)].push_back(m);
  return members;
}

std::string WhyNotInside(const std::vector<DeviceFacts>& facts, const Group& group) {
  const auto hosts = MembersOfHosts(group);
  const std::vector<int>& first = hosts.begin()->second;
  if (hosts.size() == 1) return "all members are on one host";
  for (const auto& [m, members] : hosts) {
    if (members.size() == first.size()) continue;
    return "rank " + std::to_string(group.ranks[0]) + " is on a host with " + std::to_string(first.size()) +
           " members and rank " + std::to_string(group.ranks[m]) + " on one with " + std::to_string(members.size()) +
           "; two levels need the same number on every host";
  }
  if (first.size() == 1) return "no host has several members";
  for (const auto& [m, members] : hosts) {
    if (std::string why = WhyNot(members, facts, group); !why.empty()) return why;
  }
  return "";
}

}  // namespace

void DeviceFacts::SetWhyNot(const std::string& why) {
  const size_t n = std::min(why.size(), sizeof why_not - 1);
  std::memcpy(why_not, why.data(), n);
  std::memset(why_not + n, 0, sizeof why_not - n);
}

int FirstOnHostOf(const Group& group, int m) {
  const auto& hosts = group.host_of;
  return static_cast<int>(std::find(hosts.begin(), hosts.end(), hosts[m]) - hosts.begin());
}

DeviceWay Conclude(const std::vector<DeviceFacts>& facts, const Group& group) {
  std::vector<int> everybody;
  DeviceWay way;
  int streams = group.size();  // each communicator has its id from another member
  for (int m = 0; m < group.size(); ++m) {
    everybody.push_back(m);
    way.for_now |= facts[m].no_device_yet != 0;
    streams = std::clamp<int>(facts[m].streams, 1, streams);
    if (facts[m].max_ctas > 0 && (way.max_ctas == 0 || facts[m].max_ctas < way.max_ctas))
      way.max_ctas = facts[m].max_ctas;
  }
  const auto has_device = [](const DeviceFacts& f) { return f.no_device_yet == 0; };
  if (const auto found = std::find_if(facts.begin(), facts.end(), has_device); found != facts.end())
    way.library = LibraryOf(*found);
  way.why_not_nccl = WhyNot(everybody, facts, group);
  way.why_not_inside = WhyNotInside(facts, group);
  for (int m = 0; m < streams; ++m) way.across.push_back(facts[m].across);
  way.inside = facts[FirstOnHostOf(group, group.index)].inside;
  return way;
}

}  // namespace hvd::backend
