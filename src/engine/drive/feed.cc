#include "engine/drive/feed.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/log.h"
#include "collective/channels/ahead.h"
#include "negotiation/values/pair.h"

namespace hvd::engine {
namespace {

constexpr uint32_t kMostAheadPause = 64;

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
  Submit(&tensors.group, now);
}

// Nothing else of this rank is under way, so the other finds what it sends in front of all that comes later (ahead.h).
// A rank whose data came too early, because the other does not wait for this operation alone, tries it less often.
bool Feed::MayGoAhead(const transport::Channel& to) {
  if (ahead_ != nullptr || to.keeps_any() || tools_.submissions->in_flight() != 1 || tools_.executor->size() != 0)
    return false;
  if (tools_.node->brings_directly()) return false;
  if (ahead_skips_ > 0) return --ahead_skips_, false;
  if (ahead_used_) return ahead_pause_ = 0, true;
  ahead_used_ = true;
  ahead_pause_ = std::min(2 * ahead_pause_ + 1, kMostAheadPause);
  ahead_skips_ = ahead_pause_ - 1;
  return false;
}

void Feed::Submit(std::vector<negotiation::Request>* group, double now) {
  negotiation::Request& first = group->front();
  Submitted* const own = first.payload == nullptr ? nullptr : Submitted::Of(first.ticket);
  const bool ahead = own != nullptr && own->ahead_to != nullptr;
  if (ahead && MayGoAhead(*own->ahead_to)) {
    first.ahead = ahead_numbers_[own->ahead_to] + 1;
  } else if (ahead) {
    first.payload = nullptr;
  }
  tools_.node->Submit(*group, now);
  if (first.ahead == 0 || !tools_.node->brings_directly()) return;
  ahead_ = own;
  ahead_number_ = ++ahead_numbers_[own->ahead_to];
}

// Where the connection is lost, the next read from it finds that out.
void Feed::SendAhead() {
  Submitted* const own = std::exchange(ahead_, nullptr);
  if (own == nullptr) return;
  ahead_used_ = false;
  if (Status s = collective::channels::SendAhead(ahead_number_, own->ahead, own->ahead_to); !s.ok())
    Log(LogLevel::kDebug, s.message());
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
