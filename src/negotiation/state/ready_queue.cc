#include "negotiation/state/ready_queue.h"

#include <algorithm>

namespace hvd::negotiation {

void ReadyQueue::Push(Ready ready) {
  int64_t sum = 0;
  if (__builtin_add_overflow(bytes_, ready.request->bytes(), &sum)) sum = INT64_MAX;
  bytes_ = sum;
  ready_.push_back(std::move(ready));
}

void ReadyQueue::Agreed(std::shared_ptr<const Request> request, int32_t id, double now) {
  Ready ready{std::move(request), id, 0, now};
  if (ready.request->group_hash == 0) {
    Push(std::move(ready));
    return;
  }
  const GroupKey key{ready.request->process_set, ready.request->group_hash};
  const auto size = static_cast<size_t>(ready.request->group_size);
  std::vector<Ready>& members = groups_[key];
  members.push_back(std::move(ready));
  if (members.size() < size) return;
  std::vector<Ready> whole = std::move(members);
  groups_.erase(key);
  std::sort(whole.begin(), whole.end(),
            [](const Ready& a, const Ready& b) { return a.request->group_index < b.request->group_index; });
  ++group_units_;
  for (Ready& r : whole) {
    r.group_unit = group_units_;
    r.since = now;
    Push(std::move(r));
  }
}

void ReadyQueue::DropGroup(int process_set, uint64_t hash) { groups_.erase(GroupKey{process_set, hash}); }

void ReadyQueue::DropSet(int process_set) {
  std::erase_if(groups_, [&](const auto& entry) { return entry.first.process_set == process_set; });
}

std::vector<std::vector<Ready>> ReadyQueue::Take(const FusionRules& rules) {
  std::vector<Fusible> fusible;
  fusible.reserve(ready_.size());
  for (const Ready& r : ready_) fusible.push_back({r.request.get(), r.group_unit});
  std::vector<std::vector<Ready>> batches;
  for (const std::vector<uint32_t>& indices : PackBatches(fusible, rules)) {
    std::vector<Ready>& batch = batches.emplace_back();
    batch.reserve(indices.size());
    for (uint32_t i : indices) batch.push_back(std::move(ready_[i]));
  }
  ready_.clear();
  bytes_ = 0;
  return batches;
}

}  // namespace hvd::negotiation
