// ReadyQueue: what only the root keeps: requests that all members agree on and that wait for a batch, and groups that
// are not whole yet. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "negotiation/state/fusion.h"
#include "negotiation/values/payload.h"
#include "negotiation/values/request.h"

namespace hvd::negotiation {

struct Ready {
  std::shared_ptr<const Request> request;
  int32_t id = -1;          // cached id, -1: none yet
  uint64_t group_unit = 0;  // number of the atomic group, 0 = none
  double since = 0;
};

class ReadyQueue {
 public:
  // All members agree on it. A member of a group waits here until its group is whole.
  void Agreed(std::shared_ptr<const Request> request, int32_t id, double now);
  void DropGroup(int process_set, uint64_t hash);
  void DropSet(int process_set);

  bool any() const { return !ready_.empty(); }
  double oldest() const { return ready_.front().since; }
  int64_t bytes() const { return bytes_; }
  // All members agree on what this cached id means, and have brought what it takes: no batch is needed.
  void Brought(uint32_t id, std::vector<Payload> payloads) { brought_.push_back({id, std::move(payloads)}); }
  struct WithPayloads {
    uint32_t id = 0;
    std::vector<Payload> payloads;
  };
  std::vector<WithPayloads> TakeBrought() { return std::exchange(brought_, {}); }
  // Takes everything that is ready, as batches.
  std::vector<std::vector<Ready>> Take(const FusionRules& rules);

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
  int64_t bytes_ = 0;
  std::unordered_map<GroupKey, std::vector<Ready>, GroupHasher> groups_;
  uint64_t group_units_ = 0;
  std::vector<WithPayloads> brought_;
};

}  // namespace hvd::negotiation
