#include "backend/introduction.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace hvd::backend {
namespace {

std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string Rank(int rank) { return "rank " + std::to_string(rank); }

// The first that cannot, or is unlike another one.
std::string WhyNotNccl(const std::vector<DeviceFacts>& facts, const std::vector<int>& ranks) {
  std::map<std::array<std::byte, 16>, int> rank_of_device;
  for (size_t m = 0; m < facts.size(); ++m) {
    const DeviceFacts& f = facts[m];
    if (f.nccl_version == 0)
      return Rank(ranks[m]) + ": " + std::string(f.why_not, strnlen(f.why_not, sizeof f.why_not));
    if (f.nccl_version != facts[0].nccl_version) {
      return Rank(ranks[0]) + " has NCCL " + VersionText(facts[0].nccl_version) + " and " + Rank(ranks[m]) + " has " +
             VersionText(f.nccl_version) + "; install one version everywhere";
    }
    const auto [found, added] = rank_of_device.emplace(f.device, ranks[m]);
    if (!added) {
      return Rank(found->second) + " and " + Rank(ranks[m]) +
             " use one GPU, which NCCL refuses; pin each rank to a GPU of its own, "
             "torch.cuda.set_device(hvd.local_rank()) say";
    }
  }
  return "";
}

}  // namespace

void DeviceFacts::SetWhyNot(const std::string& why) {
  const size_t n = std::min(why.size(), sizeof why_not - 1);
  std::memcpy(why_not, why.data(), n);
  std::memset(why_not + n, 0, sizeof why_not - n);
}

DeviceWay Conclude(const std::vector<DeviceFacts>& facts, const std::vector<int>& ranks) {
  return {WhyNotNccl(facts, ranks), facts[0].nccl_id};
}

}  // namespace hvd::backend
