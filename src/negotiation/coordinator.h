// Coordinator: the root's decisions, written into the log and obeyed like everybody else does. They are taken one at a
// time, at the end of a public call (Settle), when everything decided before is obeyed: each sees the state that all
// ranks will have at that place of the log. Idle on other ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "negotiation/frames/outbox.h"
#include "negotiation/order_log.h"
#include "negotiation/stall/clash.h"
#include "negotiation/state/abort_state.h"
#include "negotiation/state/departures.h"
#include "negotiation/state/joins.h"
#include "negotiation/state/marks.h"
#include "negotiation/state/ready_queue.h"
#include "negotiation/state/set_table.h"
#include "negotiation/values/actions.h"

namespace hvd::negotiation {

// How the root makes batches.
struct Pace {
  FusionRules fusion;
  double linger_s = 0;  // how long it may collect before it decides
  int max_batches_in_flight = 2;
};

class Coordinator {
 public:
  // Its inputs, and the log that it writes; all must outlive it.
  struct Around {
    const Place* place;
    const SetTable* sets;
    const AbortState* abort;
    Outbox* out;
    Results* results;
    ReadyQueue* ready;
    Marks* marks;
    Joins* joins;
    Departures* departures;
    OrderLog* log;
  };
  Coordinator(const Around& around, const Pace& pace) : at_(around), pace_(pace) {}

  bool wants_flush() const { return at_.place->root() && !at_.abort->over() && at_.ready->any(); }
  // What is decided from here on goes by these.
  void Change(const Parameters& parameters, double now);
  // For all ranks, at once.
  void Order(const TraceOrder& order, double now);
  void Ask(const ClockQuestion& question, double now);
  // Turns everything that is ready into batches, unless it is held back.
  void Flush(double now, int batches_in_flight, bool someone_waits);
  // When what lingers is due; +infinity: nothing lingers.
  double linger_deadline() const;

  // Decides everything that can be decided, but the batches.
  void Settle(double now);
  // Operations that wait for one another fail.
  void FailClashes(const std::vector<Clash>& clashes, double now);

 private:
  void LogExchanges();
  void Decide(const Tally& tally, double now);
  void DecideSetChange(const Request& request, const NameKey& key, double now);
  // unfinished: not all members have submitted it; its contributions in flight are void.
  void LogFail(const NameKey& key, const std::vector<uint64_t>& groups, const Status& why, bool unfinished = false);
  void FlushAll(double now);
  int32_t AssignId(const Request& request, double now);
  void WarnFull();
  bool HeldByLinger(double now, bool someone_waits) const;

  const Around at_;
  Pace pace_;
  bool lingers_ = false, warned_full_ = false;
};

}  // namespace hvd::negotiation
