// StallInspector: when to look for operations that wait, which of them are old, and, at the root, which have been
// noticed below. Pure: time is passed in.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "negotiation/stall/stalled.h"

namespace hvd::negotiation {

class StallInspector {
 public:
  explicit StallInspector(const StallRules& rules) : rules_(rules) {}
  const StallRules& rules() const { return rules_; }

  // At the end of every step of the node: whether anything waits.
  void Observe(bool waits, double now) {
    if (waits && !waited_) Arm(now);
    waited_ = waits;
  }
  void ScanBy(double at) { scan_at_ = std::min(scan_at_, at); }
  double scan_at() const { return scan_at_; }
  // The time to look next; kNever: nothing waits.
  double deadline() const { return waited_ || !notices_.empty() ? scan_at_ : kNever; }
  // The incomplete tallies at scan time -> those to report now; sets the time of the next scan.
  std::vector<StalledTally> Old(const std::vector<StalledTally>& incomplete, double now);

  // ---- root
  // An old tally below. False: it was asked about a moment ago.
  bool Notice(StalledTally tally, double now);
  // What to ask all ranks about: what is old here, and what was noticed below.
  std::vector<StalledTally> TakeQuestion(std::vector<StalledTally> old, double now);

 private:
  // Something begins to wait.
  void Arm(double now) {
    if (!rules_.enabled() || !notices_.empty()) return;
    scan_at_ = scan_at_ > now ? std::min(scan_at_, now + rules_.warning_s) : now + rules_.warning_s;
  }

  StallRules rules_;
  bool waited_ = false;
  double scan_at_ = kNever;
  std::vector<StalledTally> notices_;
  std::vector<std::pair<NameKey, double>> asked_;  // in the last warning time
};

}  // namespace hvd::negotiation
