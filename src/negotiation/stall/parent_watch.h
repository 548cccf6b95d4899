// ParentWatch: does the root still respond? The root watches all ranks below it; a stopped root, or a stopped rank on
// the way to it, can only be detected from below. A rank whose own request waits while nothing comes from above sends a
// query, which a live root answers. Pure.
#pragma once

#include "negotiation/stall/stalled.h"

namespace hvd::negotiation {

class ParentWatch {
 public:
  explicit ParentWatch(const StallRules& rules) : rules_(rules) {}

  void Heard(double now) {
    heard_at_ = now;
    asked_at_ = -1;
  }

  // What to do now, while an own request waits since `own_since`.
  struct Look {
    bool ask = false;     // for a sign of life
    bool silent = false;  // there has been no answer: tell the user
    bool over = false;    // and the job ends
    double again_at = kNever;
  };
  Look At(double own_since, double now);

 private:
  StallRules rules_;
  double heard_at_ = 0;     // the last frame from the parent
  double asked_at_ = -1;    // it was asked for a sign of life since; < 0: no
  double reported_at_ = 0;  // its silence was reported last
};

}  // namespace hvd::negotiation
