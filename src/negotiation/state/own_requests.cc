#include "negotiation/state/own_requests.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hvd::negotiation {

bool OwnRequests::Allowed(int process_set, bool passes_join) const {
  const ProcessSet* set = at_.sets->FindUsable(process_set);
  return set && set->own && (passes_join || !Joined(process_set)) && !at_.abort->over();
}

Status OwnRequests::WhyNot(int process_set, bool passes_join) const {
  if (Allowed(process_set, passes_join)) return {};
  if (at_.abort->over()) return at_.abort->why();
  const ProcessSet* set = at_.sets->Find(process_set);
  const std::string id = std::to_string(process_set), self = "rank " + std::to_string(at_.place->rank);
  if (!set) return {Code::kInvalidArgument, "process set " + id + " does not exist"};
  if (!set->dead.ok()) return set->dead;
  if (!set->own) return {Code::kInvalidArgument, self + " is not a member of process set " + id};
  return {Code::kInvalidArgument, self + " has joined; it can submit again when all ranks have joined"};
}

void OwnRequests::SubmitSlowly(std::span<const Request> group, double now) {
  Begin({{group.begin(), group.end()}, std::nullopt}, now);
}

void OwnRequests::Refuse(std::span<const Request> group, const std::string& reason, double now) {
  Begin({{group.begin(), group.end()}, reason}, now);
}

void OwnRequests::Join(uint64_t ticket, double now) {
  if (Status no = WhyNot(0); !no.ok()) {
    at_.results->Add(EntryFailed{ticket, 0, "join", no.Because("join")});
  } else if (AnyWaitsIn(0)) {
    join_ = ticket;
  } else {
    at_.joins->JoinSelf(ticket, now);
  }
}

void OwnRequests::ChangeSets(Request request, double now) {
  if (request.name.empty()) {
    // The n-th change of every rank belongs together. No tensor name begins like that.
    request.name = kSetChangePrefix + std::to_string(set_changes_);
    if (Allowed(request.process_set)) ++set_changes_;
  }
  request.transient = true;
  OwnGroup own;
  own.group.push_back(std::move(request));
  Begin(std::move(own), now);
}

bool OwnRequests::MustWait(const Request& r) const {
  if (at_.marks->OwnUnder(r.key()) == Marks::Own::kRefusal || (IsControl(r.type) && !waiting_.empty())) return true;
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const OwnGroup& w) {
    return std::any_of(w.group.begin(), w.group.end(), [&](const Request& q) { return NameEqual()(q.key(), r.key()); });
  });
}

void OwnRequests::Begin(OwnGroup own, double now) {
  for (const Request& r : own.group) {
    if (Status no = WhyNot(r.process_set, IsPointToPoint(r.type)); !no.ok()) return Fail(own, no);
  }
  if (std::any_of(own.group.begin(), own.group.end(), [&](const Request& r) { return MustWait(r); })) {
    waiting_.push_back(std::move(own));
    return;
  }
  for (const Request& r : own.group) {
    if (at_.marks->OwnUnder(r.key()) == Marks::Own::kNothing) continue;
    const std::string self = std::to_string(at_.place->rank);
    return Fail(own, {Code::kInvalidArgument, "this name is in flight already on rank " + self});
  }
  for (const Request& r : own.group) at_.marks->AddOwn(r, own.refusal, now);
}

// Nobody waits for the end of a refusal.
void OwnRequests::Fail(const OwnGroup& own, const Status& why) {
  if (own.refusal) return;
  for (const Request& r : own.group) at_.results->FailBecause(r, why);
}

void OwnRequests::SetChangeOver(const std::string& name) {
  const size_t prefix = std::char_traits<char>::length(kSetChangePrefix);
  if (name.compare(0, prefix, kSetChangePrefix) != 0) return;
  uint64_t number = 0;
  for (size_t i = prefix; i < name.size() && i < prefix + 18; ++i) {
    if (name[i] < '0' || name[i] > '9') return;
    number = number * 10 + static_cast<uint64_t>(name[i] - '0');
  }
  set_changes_ = std::max(set_changes_, number + 1);
}

void OwnRequests::Retry(double now) {
  if (waiting_.empty()) return;
  std::vector<OwnGroup> waiting = std::exchange(waiting_, {});
  const std::optional<uint64_t> join = std::exchange(join_, std::nullopt);  // these came before it
  for (OwnGroup& own : waiting) Begin(std::move(own), now);
  if (!join) return;
  if (AnyWaitsIn(0)) {
    join_ = join;
  } else {
    at_.joins->JoinSelf(*join, now);
  }
}

void OwnRequests::DropSet(int process_set, const Status& why) {
  std::vector<OwnGroup> kept;
  for (OwnGroup& own : waiting_) {
    if (own.group.front().process_set == process_set) {
      Fail(own, why);
    } else {
      kept.push_back(std::move(own));
    }
  }
  waiting_ = std::move(kept);
  if (process_set != 0 || !(at_.joins->own() || join_)) return;
  const uint64_t ticket = at_.joins->own() ? at_.joins->Fail() : *std::exchange(join_, std::nullopt);
  at_.results->Add(EntryFailed{ticket, 0, "join", why.Because("join")});
}

bool OwnRequests::AnyWaitsIn(int process_set) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const OwnGroup& w) { return w.group.front().process_set == process_set; });
}

}  // namespace hvd::negotiation
