// Orders: obeys what the log says, and tells the owners of tensors and wishes how they ended. Used by the holder of the
// driver role only.
#pragma once

#include "engine/drive/feed.h"
#include "engine/drive/tracing.h"
#include "engine/links/watch.h"
#include "engine/record/counters.h"
#include "engine/record/timeline.h"
#include "engine/run/executor.h"
#include "engine/run/tuning.h"
#include "engine/run/verdict.h"
#include "engine/submit/arrivals.h"
#include "negotiation/values/actions.h"

namespace hvd::engine {

class Orders {
 public:
  struct Tools {
    int rank;
    Submissions* submissions;
    ProcessSets* sets;
    Timeline* timeline;
    Executor* executor;
    Watch* watch;
    Arrivals* arrivals;
    Verdict* verdict;
    Counters* counters;
    Tuning* tuning;
    Stamp* stamp;
    Feed* feed;
    SelfSends* self_sends;
    Tracing* tracing;
  };
  explicit Orders(const Tools& tools) : tools_(tools) {}

  void Obey(negotiation::Action& action);
  // A batch has run, or all members have refused it alike.
  void Finish(BatchRun& run, const Status& status);
  bool own_goodbye_said() const { return left_; }  // it is in the log

 private:
  void Do(negotiation::ExecuteBatch& batch);
  void Do(negotiation::Exchanged& exchanged);
  void Do(negotiation::EntryFailed& entry);
  void Do(negotiation::SetAdded& set);
  void Do(negotiation::SetRemoved& set);
  void Do(negotiation::SetChangeFailed& change);
  void Do(negotiation::AllJoined& join);
  void Do(negotiation::ParametersChanged& change);
  void Do(negotiation::RankLeft& leaver);
  void Do(negotiation::Aborted& end);
  void Do(negotiation::Stalled& stalled);
  void Do(negotiation::LogLine& line);
  void Do(negotiation::TraceOrder& order);
  void Do(negotiation::TracePiece& piece);
  void Do(negotiation::ClockQuestion& question);
  void Do(negotiation::ClockAnswer& answer);
  void KeepFailure(const Submitted& own, const negotiation::EntryFailed& entry);
  void EndWish(uint64_t ticket, int64_t value, Status status);

  const Tools tools_;
  bool left_ = false;
};

}  // namespace hvd::engine
