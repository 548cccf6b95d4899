// Departures: ranks that said goodbye, ranks that died without, and ranks that must still be notified. A goodbye is not
// a death: operations that do not need the leaver go on.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/status.h"
#include "negotiation/frames/outbox.h"
#include "negotiation/state/abort_state.h"
#include "negotiation/values/actions.h"
#include "negotiation/values/rank_set.h"
#include "negotiation/values/tree.h"

namespace hvd::negotiation {

class Departures {
 public:
  struct Leaver {
    int rank = -1;
    std::string exception;  // that ends it, or empty
  };

  Departures(const Place* place, double lost_grace_s, Outbox* out, Results* results, AbortState* abort)
      : place_(*place), lost_grace_s_(lost_grace_s), out_(out), results_(results), abort_(abort) {}

  bool Left(int rank) const { return left_.Contains(rank); }

  // ---- goodbyes on their way to the root
  void LeaveSelf(const std::string& exception);
  Status FromChild(int source, Leaver leaver);
  // The root's next leaver that has not left; false: there is none.
  bool NextLeaver(Leaver* leaver);

  // ---- the log says that a rank has left
  // One of them carried the log: nothing more comes, also no goodbye of others.
  bool log_ended() const { return cut_; }
  bool EndsLog(int rank) const { return place_.size > 1 && place_.inner.Contains(rank); }
  void Obey(const Leaver& leaver);
  // Children to send the log to, in this order: the leaving rank is notified last. It may be gone the moment it knows,
  // and the others must not take that for a death.
  std::vector<int> Listeners() const;
  void ListenersInformed();

  // ---- deaths: `rank` is given time for the goodbye that may be on its way, then the job aborts
  void Lost(int rank, const std::string& reason, double now) { Lost(rank, reason, now, lost_grace_s_); }
  void Lost(int rank, const std::string& reason, double now, double grace_s);
  void JudgeLost(double now);
  double next_judgement() const;  // +infinity: none

 private:
  struct Death {
    int rank;
    std::string reason;
    double abort_at;
  };
  bool Matters(const Death& death) const { return !cut_ && !own_left_ && !left_.Contains(death.rank); }
  void Announce(Leaver leaver);
  void SelfHasLeft(const std::string& exception);

  const Place& place_;
  double lost_grace_s_;
  Outbox* out_;
  Results* results_;
  AbortState* abort_;
  RankSet left_;
  bool goodbye_ = false, own_left_ = false;
  bool cut_ = false;                // the root or an inner rank has left: the log has ended
  std::vector<int> informed_last_;  // children that leave: still to be sent the log that says so
  RankSet gone_;                    // children that were
  std::vector<Death> lost_;         // no goodbye yet
  std::deque<Leaver> leavers_;      // root: not in the log yet
};

}  // namespace hvd::negotiation
