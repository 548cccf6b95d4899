#include "engine/feed.h"

#include <utility>
#include <variant>

namespace hvd::engine {

bool Feed::PassOn() {
  if (!tools_.submissions->Take(&taken_)) return false;
  const double now = (*tools_.stamp)();
  for (Submission& submission : taken_) {
    if (tools_.verdict->failed()) break;
    std::visit([&](auto& asked) { Pass(asked, now); }, submission);
  }
  taken_.clear();
  return true;
}

void Feed::Pass(submission::Tensors& tensors, double now) {
  if (tools_.timeline->active()) Trace(tensors.group);
  const int set = tensors.group[0].process_set;
  if (set != 0) rings_parent_ |= !tools_.sets->Holds(set, tools_.connections->parent());
  tools_.node->Submit(tensors.group, now);
}

void Feed::Pass(submission::Refusal& refusal, double now) { tools_.node->Refuse(refusal.group, refusal.reason, now); }

void Feed::Pass(submission::Join& join, double now) { tools_.node->Join(join.ticket, now); }

void Feed::Pass(submission::AddSet& set, double now) { tools_.node->AddSet(std::move(set.ranks), set.ticket, now); }

void Feed::Pass(submission::RemoveSet& set, double now) { tools_.node->RemoveSet(set.process_set, set.ticket, now); }

void Feed::Pass(submission::Change& change, double now) { tools_.node->ChangeParameters(change.to, now); }

void Feed::Pass(submission::Goodbye& goodbye, double now) { tools_.node->Goodbye(now, goodbye.last_words); }

void Feed::Pass(submission::Abort& abort, double) {
  if (abort.in_order) return tools_.verdict->End(abort.why);
  tools_.verdict->Fail(abort.why, abort.tell_others);
}

void Feed::Trace(const std::vector<negotiation::Request>& group) {
  for (const negotiation::Request& r : group) {
    tools_.timeline->Begin(r.name, std::string("NEGOTIATE_") + TraceName(r.type, r.op));
    tools_.timeline->RankTick(r.name, tools_.connections->transports().rank);
  }
}

void Feed::RingParent() {
  const int parent = tools_.connections->parent();
  if (!std::exchange(rings_parent_, false) || parent < 0) return;
  if (const int local = tools_.connections->local_of(parent); local >= 0)
    tools_.connections->neighbours()->FlushRing(local);
}

}  // namespace hvd::engine
