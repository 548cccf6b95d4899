// StallProtocol: a node's part in finding out which ranks old operations wait for. An inner node tells the root about
// old incomplete tallies (a notice); the root asks the whole tree which ranks are missing (the query), and reports with
// the answers that it has after a short while: a stopped process gives none. Why not without a question:
// docs/design/0001.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "negotiation/frames/outbox.h"
#include "negotiation/stall/clash.h"
#include "negotiation/stall/inspector.h"
#include "negotiation/stall/parent_watch.h"
#include "negotiation/stall/query.h"
#include "negotiation/state/abort_state.h"
#include "negotiation/state/departures.h"
#include "negotiation/state/joins.h"
#include "negotiation/state/marks.h"
#include "negotiation/state/set_table.h"
#include "negotiation/values/actions.h"

namespace hvd::negotiation {

class StallProtocol {
 public:
  // Its inputs and outputs; they must outlive it.
  struct Around {
    const Place* place;
    const SetTable* sets;
    const Marks* marks;
    const Joins* joins;
    const Departures* departures;
    Outbox* out;
    Results* results;
    AbortState* abort;
  };
  // hosts: names for messages, per rank; may be empty. Only the root writes reports.
  StallProtocol(const Around& around, const StallRules& rules, std::vector<std::string> hosts)
      : at_(around), inspector_(rules), parent_(rules), hosts_(std::move(hosts)) {}

  // ---- at the end of every step of the node
  void Observe(double now);
  double deadline() const;  // +infinity: nothing waits

  // ---- time passes
  // Root: the answers are in, or late. Returns what waits for one another; fail it at once.
  std::vector<Clash> FinishDue(double now);
  void Scan(double now);

  // ---- frames
  void HeardParent(double now) { parent_.Heard(now); }
  void Notice(ByteReader* r, double now);
  void AnswerQuery(ByteReader* r);
  // An answer from below. *clashes: as FinishDue.
  Status Report(int source, ByteReader* r, double now, std::vector<Clash>* clashes);
  // The log has answered it.
  void Settled(NameView key) {
    if (query_.running()) query_.Settled(key);
  }

 private:
  void SendNotice(const StalledTally& tally, double now);
  void WatchParent(double now);
  std::vector<StallState> States(const std::vector<NameKey>& names) const;
  std::vector<Clash> Finish(double now);
  RankSet Submitters(size_t asked) const;

  const Around at_;
  StallInspector inspector_;
  ParentWatch parent_;
  StallQuery query_;
  std::vector<std::string> hosts_;
};

}  // namespace hvd::negotiation
