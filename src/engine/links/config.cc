#include "engine/links/config.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "engine/wake/cores.h"
#include "negotiation/values/tree.h"

namespace hvd::engine {

int CoresPerRank(const hvd_config& c) {
  std::vector<int64_t> pids;
  for (int r = 0; r < c.size; ++r) {
    if (c.host_of_rank[r] != c.host_of_rank[c.rank]) continue;
    const hvd_peer* peer = std::find_if(c.peers, c.peers + c.n_peers, [r](const hvd_peer& p) { return p.rank == r; });
    pids.push_back(peer == c.peers + c.n_peers ? 0 : peer->pid);
  }
  if (static_cast<size_t>(c.local_size) > pids.size()) pids.resize(c.local_size);
  std::vector<CoreSet> allowed = CoresOf(pids);
  if (!EachHasACore(allowed)) return 0;
  allowed.reserve(2 * allowed.size());
  std::copy(allowed.begin(), allowed.end(), std::back_inserter(allowed));
  return EachHasACore(allowed) ? 2 : 1;
}

std::vector<int> DirectLeadersOf(const hvd_config& c) {
  std::vector<int> leaders = negotiation::DirectLeaders(std::vector<int>(c.host_of_rank, c.host_of_rank + c.size));
  const bool few_connections = c.wish_fd >= 0;
  if (few_connections && leaders.size() > 2) leaders.clear();
  return leaders;
}

negotiation::NodeConfig NodeConfigFrom(const hvd_config& c) {
  negotiation::NodeConfig n;
  n.rank = c.rank;
  n.size = c.size;
  n.epoch = c.epoch;
  n.parent = negotiation::BuildTree(std::vector<int>(c.host_of_rank, c.host_of_rank + c.size));
  n.leaders = DirectLeadersOf(c);
  n.cache_capacity = c.cache_capacity;
  n.fusion_threshold_bytes = c.fusion_threshold_bytes;
  n.disable_group_fusion = c.disable_group_fusion != 0;
  // Inside a host every element is reduced in rank order whatever the batch: only algorithms between hosts round by
  // position.
  const bool one_host =
      std::all_of(c.host_of_rank, c.host_of_rank + c.size, [&](int h) { return h == c.host_of_rank[0]; });
  n.deterministic = c.deterministic != 0 && !one_host;
  n.stall_warning_s = c.stall_check_disable != 0 ? 0 : c.stall_warning_s;
  n.stall_shutdown_s = c.stall_shutdown_s;
  n.linger_s = c.cycle_time_ms / 1e3;
  return n;
}

negotiation::Parameters ParametersFrom(const hvd_config& c) {
  negotiation::Parameters p;
  p.fusion_threshold_bytes = c.fusion_threshold_bytes;
  p.cycle_time_ms = c.cycle_time_ms;
  p.hierarchical_allreduce = c.hierarchical_allreduce;
  p.hierarchical_allgather = c.hierarchical_allgather;
  p.torus_allreduce = c.torus_allreduce;
  return p;
}

Status CheckConfig(const hvd_config& c) {
  const auto bad = [](const std::string& what) { return Status(Code::kInvalidArgument, "hvd_init: " + what); };
  if (c.struct_bytes != sizeof(hvd_config)) {
    return bad("the caller's hvd_config has " + std::to_string(c.struct_bytes) + " bytes, this library's " +
               std::to_string(sizeof(hvd_config)) + "; library and Python package are of different versions.");
  }
  if (c.size < 1 || c.rank < 0 || c.rank >= c.size)
    return bad("rank " + std::to_string(c.rank) + " of size " + std::to_string(c.size) + ".");
  if (c.host_of_rank == nullptr) return bad("host_of_rank is missing.");
  if (c.n_peers < 0 || (c.n_peers > 0 && c.peers == nullptr)) return bad("peers is missing.");
  std::set<int> seen;
  for (int i = 0; i < c.n_peers; ++i) {
    const int r = c.peers[i].rank;
    if (r < 0 || r >= c.size || r == c.rank)
      return bad("peer rank " + std::to_string(r) + " of size " + std::to_string(c.size) + ".");
    if (!seen.insert(r).second) return bad("peer rank " + std::to_string(r) + " is given twice.");
  }
  return Status();
}

}  // namespace hvd::engine
