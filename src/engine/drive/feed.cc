#include "engine/drive/feed.h"

#include <utility>
#include <variant>

#include "negotiation/values/pair.h"

namespace hvd::engine {
namespace {

// Of a send or recv, or of its refusal.
std::optional<negotiation::Pair> PairOf(const Submission& submission) {
  const std::vector<negotiation::Request>* group = nullptr;
  if (const auto* tensors = std::get_if<submission::Tensors>(&submission)) group = &tensors->group;
  if (const auto* refusal = std::get_if<submission::Refusal>(&submission)) group = &refusal->group;
  return group == nullptr ? std::nullopt : negotiation::PairOf(group->front().name);
}

}  // namespace

bool Feed::PassOn() {
  if (!tools_.submissions->Take(&taken_)) return false;
  const double now = (*tools_.stamp)();
  for (Submission& submission : taken_) {
    const std::optional<negotiation::Pair> pair = PairOf(submission);
    if (!pair || pair->from == pair->to || pairs_.MayPass(submission)) Pass(submission, now);
  }
  taken_.clear();
  return true;
}

void Feed::Answered(int process_set, const std::string& name) {
  const double now = (*tools_.stamp)();
  for (Submission& next : pairs_.Answered(process_set, name)) Pass(next, now);
}

void Feed::Pass(Submission& submission, double now) {
  if (tools_.verdict->failed()) return;
  std::visit([&](auto& asked) { Pass(asked, now); }, submission);
}

void Feed::Pass(submission::Tensors& tensors, double now) {
  const negotiation::Request& first = tensors.group[0];
  const std::optional<negotiation::Pair> pair = negotiation::PairOf(first.name);
  if (pair && pair->from == pair->to) {
    tools_.self_sends->Add(first.ticket, tensors.waits);
    // Submitted while its set was being removed.
    if (tools_.sets->Find(first.process_set) == nullptr) tools_.self_sends->DropSet(first.process_set);
    return;
  }
  if (tools_.timeline->active()) Trace(tensors.group);
  if (pair) {
    rings_parent_ |= !pair->ranks().Contains(tools_.connections->parent());
  } else if (first.process_set != 0) {
    rings_parent_ |= !tools_.sets->Holds(first.process_set, tools_.connections->parent());
  }
  tools_.node->Submit(tensors.group, now);
}

void Feed::Pass(submission::Refusal& refusal, double now) { tools_.node->Refuse(refusal.group, refusal.reason, now); }

void Feed::Pass(submission::Join& join, double now) { tools_.node->Join(join.ticket, now); }

void Feed::Pass(submission::AddSet& set, double now) {
  tools_.node->AddSet(std::move(set.ranks), set.ticket, now, set.by_members);
}

void Feed::Pass(submission::RemoveSet& set, double now) { tools_.node->RemoveSet(set.process_set, set.ticket, now); }

void Feed::Pass(submission::Change& change, double now) { tools_.node->ChangeParameters(change.to, now); }

void Feed::Pass(submission::Trace& trace, double now) { tools_.tracing->Order(trace.order, trace.ticket, now); }

void Feed::Pass(submission::Goodbye& goodbye, double now) {
  tools_.tracing->PassAll();  // nothing comes from this rank behind it
  tools_.node->Goodbye(now, goodbye.last_words);
}

void Feed::Pass(submission::Abort& abort, double) {
  if (abort.in_order) return tools_.verdict->End(abort.why);
  tools_.verdict->Fail(abort.why, abort.tell_others);
}

void Feed::Trace(const std::vector<negotiation::Request>& group) {
  for (const negotiation::Request& r : group)
    tools_.timeline->Submitted(r.name, r.process_set, TraceName(r.type, r.op));
}

void Feed::RingParent() {
  const int parent = tools_.connections->parent();
  if (!std::exchange(rings_parent_, false) || parent < 0) return;
  if (const int local = tools_.connections->local_of(parent); local >= 0)
    tools_.connections->neighbours()->FlushRing(local);
}

}  // namespace hvd::engine
