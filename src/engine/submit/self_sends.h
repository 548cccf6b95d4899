// SelfSends: what a rank sends to itself. Nobody else need know of it: the n-th send of a process set meets the n-th
// recv here. Used by the holder of the driver role only.
#pragma once

#include <deque>
#include <map>

#include "engine/record/counters.h"
#include "engine/submit/arrivals.h"
#include "engine/submit/submissions.h"

namespace hvd::engine {

class SelfSends {
 public:
  struct Tools {
    Submissions* submissions;
    Arrivals* arrivals;
    Counters* counters;
  };
  explicit SelfSends(const Tools& tools) : tools_(tools) {}

  // A submitted send or recv. waits: a thread does nothing else until it is done, so that a recv must find its send.
  void Add(uint64_t ticket, bool waits);
  // The process set has been removed: what waits fails.
  void DropSet(int process_set);

 private:
  struct Waiting {
    std::deque<uint64_t> sends, recvs;  // tickets; of one kind at a time
  };
  void Meet(uint64_t send, uint64_t recv);
  void End(uint64_t ticket, const Status& status);

  const Tools tools_;
  std::map<int, Waiting> waiting_;  // by process set
};

}  // namespace hvd::engine
