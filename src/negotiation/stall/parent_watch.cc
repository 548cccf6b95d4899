#include "negotiation/stall/parent_watch.h"

#include <algorithm>

namespace hvd::negotiation {

ParentWatch::Look ParentWatch::At(double own_since, double now) {
  Look look;
  const double patience_s = 2 * rules_.patience_s(), over_at = rules_.over_at(own_since);
  double ask_at = std::max({heard_at_, reported_at_, own_since}) + rules_.warning_s;
  // The end of the shutdown time is judged on time: a rank that has not asked yet asks early enough for an answer.
  const double last_ask_at = asked_at_ < 0 ? over_at - patience_s : over_at;
  if (last_ask_at > heard_at_) ask_at = std::min(ask_at, last_ask_at);
  if (now < ask_at) {
    look.again_at = ask_at;
    return look;
  }
  look.ask = asked_at_ < 0;
  if (look.ask) asked_at_ = now;
  if (now < asked_at_ + patience_s) {
    look.again_at = asked_at_ + patience_s;
    return look;
  }
  reported_at_ = now;
  look.silent = true;
  look.over = now >= over_at;
  if (!look.over) look.again_at = std::min(now + rules_.warning_s, over_at);
  return look;
}

}  // namespace hvd::negotiation
