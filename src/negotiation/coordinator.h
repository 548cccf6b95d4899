// Coordinator: what only the root keeps: requests that all members agree on and that wait for a batch, groups that are
// not whole yet, and who has joined. It decides; the node writes the decision into the log. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "negotiation/fusion.h"
#include "negotiation/rank_set.h"
#include "negotiation/request.h"

namespace hvd {

struct Ready {
  std::shared_ptr<const Request> request;
  int32_t id = -1;          // cached id, -1: none yet
  uint64_t group_unit = 0;  // number of the atomic group, 0 = none
  double since = 0;
};

class Coordinator {
 public:
  // All members agree on it. A member of a group waits here until its group is whole.
  void Agreed(std::shared_ptr<const Request> request, int32_t id, double now);
  void DropGroup(int process_set, uint64_t hash);
  void DropSet(int process_set);

  bool any_ready() const { return !ready_.empty(); }
  double oldest_ready() const { return ready_.front().since; }
  int64_t ready_bytes() const { return ready_bytes_; }
  // Takes everything that is ready, as batches.
  std::vector<std::vector<Ready>> Take(const FusionRules& rules);

  RankSet joined;
  int last_joined = -1;

 private:
  struct GroupKey {
    int process_set;
    uint64_t hash;
    bool operator==(const GroupKey&) const = default;
  };
  struct GroupHasher {
    size_t operator()(const GroupKey& k) const {
      return k.hash * 0x9e3779b97f4a7c15ull + static_cast<size_t>(k.process_set);
    }
  };
  void Push(Ready ready);

  std::vector<Ready> ready_;
  int64_t ready_bytes_ = 0;
  std::unordered_map<GroupKey, std::vector<Ready>, GroupHasher> groups_;
  uint64_t group_units_ = 0;
};

}  // namespace hvd
