// The subject of the stall protocol: operations that some ranks have submitted and others have not. Plain values.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "negotiation/values/rank_set.h"
#include "negotiation/values/request.h"

namespace hvd::negotiation {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

struct StallRules {
  double warning_s = 0;   // 0 = nothing is looked for
  double shutdown_s = 0;  // 0 = never

  bool enabled() const { return warning_s > 0; }
  // How long a rank may take to answer a question. A small part of the shutdown time, which is kept within 10 %.
  double patience_s() const {
    const double limit = shutdown_s > 0 ? std::min(warning_s / 4, shutdown_s / 20) : warning_s / 4;
    return std::clamp(limit, 1e-3, 1.0);
  }
  // When an operation ends the job that waits since then; kNever: it does not.
  double over_at(double since) const { return shutdown_s > 0 ? since + shutdown_s : kNever; }
};

struct StalledTally {
  NameKey key;
  OpType type = OpType::kAllreduce;
  double since = 0;  // the receiver's clock
  uint64_t group_hash = 0;
  int32_t group_size = 0;

  std::string Text() const;  // "allreduce 'w'"
  // What these ranks have to do for it: the same, or of a send "recv from rank 0".
  std::string PartOf(const RankSet& ranks) const;
  bool joins_a_pair() const { return type == OpType::kSend; }
};

// One node's answer about one stalled tally.
struct StallState {
  bool present = false;      // somebody at or below this node has contributed
  bool own_missing = false;  // this rank must contribute and has not
  std::vector<int> missing;  // children through which contributions are missing
};

// "0.25 s", "2.5 s", "61 s": never more than it is.
std::string SecondsText(double s);

}  // namespace hvd::negotiation
