// The report to users about operations that wait, made from the answers of all ranks. Pure.
#pragma once

#include <string>
#include <vector>

#include "negotiation/stall/query.h"
#include "negotiation/stall/stalled.h"

namespace hvd::negotiation {

struct StallReport {
  std::string text;      // empty: resolved meanwhile
  std::string shutdown;  // not empty: an operation is older than the shutdown time
};
// `now` may come from a coarser clock than the time when the query began.
StallReport WriteStallReport(const StallQuery& query, const StallRules& rules,
                             const std::vector<std::string>& host_of_rank, double now);

}  // namespace hvd::negotiation
