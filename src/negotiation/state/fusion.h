// Fusion: which ready requests travel together. A pure function with look-ahead: a request joins the first open batch
// of its kind that has room, so a stranger in between ends nothing. Used by the ready queue only.
#pragma once

#include <cstdint>
#include <vector>

#include "negotiation/values/request.h"

namespace hvd::negotiation {

struct FusionRules {
  int64_t threshold_bytes = 0;  // 0 = no fusion
  bool groups_alone = false;    // the members of a group are fused with one another only, whatever their size
  bool deterministic = false;   // allreduces are never fused
};

struct Fusible {
  const Request* request = nullptr;
  uint64_t group = 0;  // unit number of an atomic group, 0 = none
};

// Batches of indices into `ready`; each ascending; ordered by their first index.
std::vector<std::vector<uint32_t>> PackBatches(const std::vector<Fusible>& ready, const FusionRules& rules);

}  // namespace hvd::negotiation
