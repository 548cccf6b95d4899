#include "transport/silence.h"

namespace hvd::transport {
namespace {

// The kernel counts in ticks of up to 10 ms.
constexpr double kTickS = 0.02;
// For the answer to the second question.
constexpr double kAnswerS = 0.5;

}  // namespace

bool Silence::Judge(const Facts& facts, double now, double patience_s) {
  const double heard_at = now - facts.since_heard, sent_at = now - facts.since_sent;
  // Both times are of one reading, so they compare exactly.
  const bool sent_since = facts.since_sent < facts.since_heard;
  const bool open = facts.owed && (sent_since || facts.questions > 0);
  if (!open || heard_at + kTickS > asked_at_) asked_at_ = -kNever;
  if (!open) return false;
  if (asked_at_ == -kNever) {
    asked_at_ = sent_since ? sent_at : now;
    again_at_ = kNever;
  } else if (again_at_ == kNever && (sent_at > sent_at_ + kTickS || facts.questions > questions_)) {
    again_at_ = now;
  }
  sent_at_ = sent_at;
  questions_ = facts.questions;
  return now >= again_at_ + kAnswerS && now >= asked_at_ + patience_s;
}

}  // namespace hvd::transport
