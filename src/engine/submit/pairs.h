// Pairs: sends and recvs on their way to the negotiation. It knows one name for each pair of ranks, so one request of a
// pair is there at a time; the next ones wait here, in order. Used by the holder of the driver role only.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/submit/submissions.h"

namespace hvd::engine {

class Pairs {
 public:
  // Of one pair. True: pass it on. False: it waits here until the log has answered the one before it.
  bool MayPass(Submission& submission);
  // The log has answered the request of this pair: what is to be passed on now, in order.
  std::vector<Submission> Answered(int process_set, const std::string& name);

 private:
  using Key = std::pair<int, std::string>;
  // Of a pair of which a request is there. A refusal is not answered, but what comes behind it waits in the
  // negotiation.
  std::map<Key, std::deque<Submission>> waiting_;
};

}  // namespace hvd::engine
