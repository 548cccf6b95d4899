#include "negotiation/state/fusion.h"

#include <algorithm>

#include "negotiation/values/signature.h"

namespace hvd::negotiation {
namespace {

constexpr size_t kOpenBatches = 16;  // looked at for room, the newest first: keeps packing linear

struct Open {
  const Request* kind;
  uint64_t group;
  int64_t bytes;
  uint32_t batch;
};

bool CanFuse(OpType type, bool deterministic) {
  if (type == OpType::kAllreduce) return !deterministic;
  return type == OpType::kAllgather || type == OpType::kReducescatter;
}

bool SameKind(const Request& a, const Request& b) {
  return a.type == b.type && a.dtype == b.dtype && (!HasReduceOp(a.type) || a.op == b.op) &&
         a.process_set == b.process_set && a.on_device == b.on_device && SameFactors(a, b);
}

}  // namespace

std::vector<std::vector<uint32_t>> PackBatches(const std::vector<Fusible>& ready, const FusionRules& rules) {
  std::vector<std::vector<uint32_t>> batches;
  std::vector<Open> open;
  for (uint32_t i = 0; i < ready.size(); ++i) {
    const Request& r = *ready[i].request;
    const uint64_t group = rules.groups_alone ? ready[i].group : 0;
    const bool can_fuse = CanFuse(r.type, rules.deterministic) && (group != 0 || rules.threshold_bytes > 0);
    const int64_t bytes = r.bytes();
    const int64_t limit = group != 0 ? INT64_MAX : rules.threshold_bytes;
    Open* found = nullptr;
    if (can_fuse && bytes <= limit) {
      for (Open& o : open) {
        if (o.group == group && o.bytes <= limit - bytes && SameKind(*o.kind, r)) {
          found = &o;
          break;
        }
      }
    }
    if (found) {
      found->bytes += bytes;
      batches[found->batch].push_back(i);
      continue;
    }
    if (can_fuse && bytes < limit) {
      if (open.size() == kOpenBatches) open.erase(open.begin());
      open.push_back({&r, group, bytes, static_cast<uint32_t>(batches.size())});
    }
    batches.push_back({i});
  }
  return batches;
}

}  // namespace hvd::negotiation
