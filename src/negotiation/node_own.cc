// This rank's own wishes: submissions, refusals, set changes, join. What cannot begin yet because an own refusal of the
// same name is not used up waits here, in order.
#include <algorithm>

#include "negotiation/node_impl.h"

namespace hvd {

Status Node::Impl::WhyNot(const Request& r) const {
  if (!aborted.ok()) return aborted;
  const ProcessSet* set = sets.Find(r.process_set);
  const std::string id = std::to_string(r.process_set);
  if (!set) return {Code::kInvalidArgument, "process set " + id + " does not exist"};
  if (!set->dead.ok()) return set->dead;
  if (!set->own) {
    return {Code::kInvalidArgument, "rank " + std::to_string(place.rank) + " is not a member of process set " + id};
  }
  if ((own_joined || join_waits) && r.process_set == 0) {
    return {Code::kInvalidArgument,
            "rank " + std::to_string(place.rank) + " has joined; it can submit again when all ranks have joined"};
  }
  return {};
}

void Node::Impl::ActFail(OpType type, int process_set, const std::string& name, uint64_t ticket, Status status) {
  Action a;
  a.kind = IsControl(type) ? Action::Kind::kSetFailed : Action::Kind::kFail;
  a.process_set = process_set;
  a.name = name;
  a.ticket = ticket;
  a.status = std::move(status);
  actions.push_back(std::move(a));
}

void Node::Impl::FailOwn(const Request& r, const Status& status) {
  ActFail(r.type, r.process_set, r.name, r.ticket, status.Because(Subject(r.type, r.name, r.process_set)));
}

void Node::Impl::Contribute(Part part, NameView key, OpType type, uint64_t ticket, double now) {
  Tally& t = OpenTally(key, type, now);
  t.own_ticket = ticket;
  own_waiting += ticket != 0;
  t.own_refusal = part.request == nullptr;
  t.Add(std::move(part));
  Contributed(&t);
}

// The set exists, lives, and this rank is in it; the name is not in flight.
void Node::Impl::SubmitOne(const Request& r, double now) {
  const NameView key{r.process_set, r.name};
  const int32_t id = cache.IdOf(key);
  if (id >= 0) {
    Slot& s = cache.at(static_cast<uint32_t>(id));
    if (SameSignature(*s.request, r)) {
      if (!s.in_tally) {
        s.own_ticket = r.ticket;
        ++own_waiting;
        MarkSlot(static_cast<uint32_t>(id), 0, now);
      } else {
        Contribute({0, s.request, {}, 0, id, RankSet::Of(place.rank)}, key, r.type, r.ticket, now);
      }
      return;
    }
  }
  auto request = std::make_shared<Request>(r);
  request->ticket = 0;
  Contribute({0, std::move(request), {}, 0, -1, RankSet::Of(place.rank)}, key, r.type, r.ticket, now);
}

void Node::Impl::RefuseNow(const Request& what, const std::string& reason, double now) {
  Contribute({0, nullptr, reason, what.group_hash, -1, RankSet::Of(place.rank)}, {what.process_set, what.name},
             what.type, 0, now);
}

void Node::Impl::SubmitOrDefer(Deferred wish, double now) {
  auto blocked = [&](const Request& r) {
    const NameView key{r.process_set, r.name};
    if (OwnRefusalPending(key) || (IsControl(r.type) && !deferred.empty())) return true;
    return std::any_of(deferred.begin(), deferred.end(), [&](const Deferred& d) {
      return std::any_of(d.group.begin(), d.group.end(),
                         [&](const Request& q) { return q.process_set == r.process_set && q.name == r.name; });
    });
  };
  for (const Request& r : wish.group) {
    if (Status no = WhyNot(r); !no.ok()) {
      for (const Request& q : wish.group) {
        if (!wish.refusal) FailOwn(q, no);
      }
      return;
    }
  }
  if (std::any_of(wish.group.begin(), wish.group.end(), blocked)) {
    deferred.push_back(std::move(wish));
    return;
  }
  for (const Request& r : wish.group) {
    if (!OwnPending({r.process_set, r.name})) continue;
    const Status twice(Code::kInvalidArgument, "this name is in flight already on rank " + std::to_string(place.rank));
    for (const Request& q : wish.group) {
      if (!wish.refusal) FailOwn(q, twice);
    }
    return;
  }
  for (const Request& r : wish.group) {
    if (wish.refusal) {
      RefuseNow(r, wish.reason, now);
    } else {
      SubmitOne(r, now);
    }
  }
}

void Node::Impl::RetryDeferred(double now) {
  if (deferred.empty()) return;
  std::vector<Deferred> wishes = std::move(deferred);
  deferred.clear();
  const bool then_join = std::exchange(join_waits, false);  // these came before it
  for (Deferred& wish : wishes) SubmitOrDefer(std::move(wish), now);
  if (!then_join) return;
  if (AnyDeferredIn(0)) {
    join_waits = true;
  } else {
    JoinNow(now);
  }
}

bool Node::Impl::AnyDeferredIn(int process_set) const {
  return std::any_of(deferred.begin(), deferred.end(),
                     [&](const Deferred& d) { return d.group.front().process_set == process_set; });
}

void Node::Impl::JoinNow(double now) {
  own_joined = true;
  joined_below.Add(place.rank);
  sets.SourceJoined(0);
  if (is_root()) {
    coordinator.joined.Add(place.rank);
    coordinator.last_joined = place.rank;
  } else {
    out.Up(UpRecord::kJoined, version).Varint(static_cast<uint32_t>(place.rank));
  }
  RecheckGlobalSet(now);
  CheckAllJoined();
}

void Node::Impl::ChangeSets(Request request, double now) {
  // Changes are counted: the n-th one of every rank belongs together. No tensor name begins like that.
  request.name = kSetChangePrefix + std::to_string(set_changes);
  if (WhyNot(request).ok()) ++set_changes;
  request.transient = true;
  Deferred wish;
  wish.group.push_back(std::move(request));
  SubmitOrDefer(std::move(wish), now);
}

}  // namespace hvd
