// AbortState: whether the job is over for this node, and why. The node that finds the reason raises it and informs
// the others.
#pragma once

#include "base/status.h"
#include "negotiation/frames/outbox.h"
#include "negotiation/values/actions.h"

namespace hvd::negotiation {

class AbortState {
 public:
  AbortState(bool root, Outbox* out, Results* results) : root_(root), out_(out), results_(results) {}

  bool over() const { return !why_.ok(); }
  const Status& why() const { return why_; }

  // Detected locally: propagates to parent and children.
  void Raise(const Status& why) {
    if (over()) return;
    Obey(why);
    if (!root_) Tell(out_->Up(UpRecord::kAbort));
    Tell(out_->Down(LogRecord::kAbort));
  }
  // Detected elsewhere: the log tells all nodes.
  void Obey(const Status& why) {
    if (over()) return;
    why_ = why;
    results_->Add(Aborted{why});
  }

 private:
  void Tell(ByteWriter w) const { WriteStatus(why_, &w); }

  bool root_;
  Outbox* out_;
  Results* results_;
  Status why_;
};

}  // namespace hvd::negotiation
