// StallInspector: when to look for operations that some ranks have submitted and others have not, whom to ask, and what
// to tell. Every node has one (inner nodes tell the root about old tallies); the root collects the answers and writes
// the report. Pure: time is passed in.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "negotiation/name_key.h"
#include "negotiation/rank_set.h"
#include "negotiation/request.h"

namespace hvd {

struct StalledTally {
  int process_set = 0;
  OpType type = OpType::kAllreduce;
  std::string name;
  double since = 0;  // the receiver's clock
};

// One node's answer about one stalled tally.
struct StallState {
  bool present = false;      // somebody at or below this node has contributed
  bool own_missing = false;  // this rank must contribute and has not
  std::vector<int> missing;  // children through which contributions are missing
};

struct StallRules {
  bool enabled = true;
  double warning_s = 60;
  double shutdown_s = 0;  // 0 = never
};

class StallInspector {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit StallInspector(const StallRules& rules) : rules_(rules) {}
  const StallRules& rules() const { return rules_; }

  // A tally was begun while none was incomplete.
  void Arm(double now) {
    if (!rules_.enabled || !notices_.empty()) return;
    scan_at_ = scan_at_ > now ? std::min(scan_at_, now + rules_.warning_s) : now + rules_.warning_s;
  }
  void ScanBy(double at) { scan_at_ = std::min(scan_at_, at); }
  // How long a rank may take to answer a question.
  double patience_s() const { return std::min(1.0, std::max(rules_.warning_s / 4, 1e-3)); }
  double scan_at() const { return scan_at_; }
  // The incomplete tallies at scan time -> those to report now; sets the time of the next scan.
  std::vector<StalledTally> Old(const std::vector<StalledTally>& incomplete, double now);

  // ---- root
  // False: it was asked about a moment ago.
  bool Notice(StalledTally tally, double now);
  bool has_notices() const { return !notices_.empty(); }
  // Begins a query about `own` and the noticed ones; false: there is nothing to ask, or a query runs.
  bool BeginQuery(std::vector<StalledTally> own, double now);
  bool querying() const { return querying_; }
  uint64_t number() const { return number_; }
  const std::vector<StalledTally>& asked() const { return asked_; }
  void Answer(uint64_t number, int rank, std::vector<StallState> states);
  bool AllAnswered() const;  // nobody who matters is silent
  double answer_deadline() const { return querying_ ? answer_by_ : kNever; }

  struct Report {
    std::string text;      // empty: resolved meanwhile
    std::string shutdown;  // not empty: an operation is older than the shutdown time
  };
  Report EndQuery(double now, const std::vector<std::string>& host_of_rank);

 private:
  struct Missing {
    RankSet ranks;
    RankSet silent;  // these have not answered: they, and what is below them
    bool present = false;
  };
  Missing Find(size_t index) const;
  std::string Names(const std::vector<size_t>& tallies, double now, bool* over) const;

  StallRules rules_;
  double scan_at_ = kNever;
  std::vector<StalledTally> notices_;
  std::vector<std::pair<NameKey, double>> told_;  // what was asked about in the last warning time
  bool querying_ = false;
  uint64_t number_ = 0;
  double answer_by_ = 0;
  std::vector<StalledTally> asked_;
  std::unordered_map<int, std::vector<StallState>> answers_;
};

}  // namespace hvd
