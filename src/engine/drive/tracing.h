// Tracing: a trace of all ranks, as far as it goes over the control connections: rank 0's order to begin or end it, the
// pieces of the other ranks' parts on their way to rank 0, and the clocks of other hosts. Pieces are sent when nothing
// else waits for the connection, and at a bounded rate, so that the negotiation does not wait for them. Used by the
// holder of the driver role, but for any().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "engine/links/connections.h"
#include "engine/record/clock_offset.h"
#include "engine/record/timeline.h"
#include "engine/submit/arrivals.h"
#include "engine/submit/submissions.h"
#include "negotiation/node.h"

namespace hvd::engine {

class Tracing {
 public:
  struct Tools {
    Timeline* timeline;
    negotiation::Node* node;
    Connections* connections;
    Submissions* submissions;
    Arrivals* arrivals;
  };
  // This rank's part, when rank 0 orders one; and the hosts of the ranks, equal numbers being one host.
  struct Job {
    Timeline::Plan part;
    std::vector<int> host_of_rank;
  };
  Tracing(const Tools& tools, Job job);

  // Ranks whose pieces come through this one have not ended theirs. Any thread.
  bool awaits_others() const { return awaits_others_.load(std::memory_order_relaxed); }
  // There is something to send. Any thread.
  bool any() const { return tools_.timeline->due(); }
  // A round's share of it. True: something was handed to the negotiation.
  template <class Clock>
  bool PassOn(Clock now) {
    return (any() || more_) && Pass(now());
  }
  // When the rate allows more; infinity: nothing waits for that.
  double next_deadline() const { return std::min(allowed_from_, ends_by_); }
  // This rank's part is to end, when what was agreed before has run.
  bool ending() const { return ends_by_ < std::numeric_limits<double>::infinity(); }
  void EndPart(bool idle, double now);
  // All of this rank's part, at its end.
  void PassAll();

  // Rank 0 begins or ends a trace. ticket: of the wish that is done when all ranks have ended theirs; 0: to begin. On
  // another rank: when all have whose pieces come through this one.
  void Order(const negotiation::TraceOrder& order, uint64_t ticket, double now);
  void Obey(const negotiation::TraceOrder& order, double now);
  void Take(negotiation::TracePiece& piece);
  void Answer(const negotiation::ClockQuestion& question, double now);
  void Take(const negotiation::ClockAnswer& answer, double now);
  // A rank has left, and with it goes what it had to say.
  void Left(int rank);

 private:
  bool Pass(double now);
  void AskClocks(double now);
  void AwaitThoseBelow();
  void EndIfAll();
  int size() const { return static_cast<int>(job_.host_of_rank.size()); }
  bool root() const { return job_.part.rank == 0; }

  const Tools tools_;
  const Job job_;
  const int leader_;   // the lowest rank of this rank's host
  bool more_ = false;  // of what was due
  // Bytes that may be sent, at that time; and when there are some again.
  double allowed_ = 0, allowed_at_ = 0, allowed_from_ = std::numeric_limits<double>::infinity();
  double ends_by_ = std::numeric_limits<double>::infinity();
  uint32_t number_ = 0;
  uint64_t end_ticket_ = 0;
  std::vector<char> ended_, left_;  // ended_: also those that are not awaited
  std::atomic<bool> awaits_others_{false};
  std::map<int, ClockOffset> clocks_;  // of rank 0: by the lowest rank of a host
};

}  // namespace hvd::engine
