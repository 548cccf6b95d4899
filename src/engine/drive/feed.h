// Feed: hands what threads have submitted on to the negotiation. Used by the holder of the driver role only.
#pragma once

#include <vector>

#include "engine/drive/tracing.h"
#include "engine/links/connections.h"
#include "engine/record/timeline.h"
#include "engine/run/verdict.h"
#include "engine/submit/pairs.h"
#include "engine/submit/self_sends.h"
#include "engine/submit/submissions.h"
#include "engine/wake/clock.h"
#include "negotiation/node.h"

namespace hvd::engine {

class Feed {
 public:
  struct Tools {
    Submissions* submissions;
    ProcessSets* sets;
    Timeline* timeline;
    negotiation::Node* node;
    Connections* connections;
    Verdict* verdict;
    const Stamp* stamp;
    SelfSends* self_sends;
    Tracing* tracing;
  };
  explicit Feed(const Tools& tools) : tools_(tools) {}

  bool any() const { return tools_.submissions->any(); }
  bool any_in_flight() const { return tools_.submissions->any_in_flight(); }
  // Everything that is there, in order. True: there was something.
  bool PassOn();
  // The log has answered a send or recv: the next one of that pair's name is passed on.
  void Answered(int process_set, const std::string& name);
  // When what was passed on has been sent: rings a parent in the tree that has no part in it, and so is not about to
  // call by itself.
  void RingParent();
  // After it threw: what is half done cannot be repeated.
  void Drop() { taken_.clear(); }

 private:
  void Pass(Submission& submission, double now);
  void Pass(submission::Tensors& tensors, double now);
  void Pass(submission::Refusal& refusal, double now);
  void Pass(submission::Join& join, double now);
  void Pass(submission::AddSet& set, double now);
  void Pass(submission::RemoveSet& set, double now);
  void Pass(submission::Change& change, double now);
  void Pass(submission::Trace& trace, double now);
  void Pass(submission::Goodbye& goodbye, double now);
  void Pass(submission::Abort& abort, double now);
  void Trace(const std::vector<negotiation::Request>& group);

  const Tools tools_;
  Pairs pairs_;
  std::vector<Submission> taken_;
  bool rings_parent_ = false;  // what goes up concerns a process set that the parent is not in
};

}  // namespace hvd::engine
