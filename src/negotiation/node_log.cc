// Obeying the log: the same records, in the same order, on every rank (the root obeys what it wrote itself through the
// same code).
#include <algorithm>

#include "negotiation/node_impl.h"

namespace hvd {
namespace {

Status Wrong(const std::string& what) { return {Code::kInternal, what}; }

}  // namespace

Status Node::Impl::ApplyLog(ByteReader* r, double now) {
  while (!r->AtEnd() && aborted.ok()) {
    Status status;
    switch (static_cast<LogRecord>(r->U8())) {
      case LogRecord::kDefine:
        status = ApplyDefine(r);
        break;
      case LogRecord::kBatch:
        status = ApplyBatch(r);
        break;
      case LogRecord::kFail:
        status = ApplyFail(r, now);
        break;
      case LogRecord::kSetAdded:
        status = ApplySetAdded(r);
        break;
      case LogRecord::kSetRemoved:
        status = ApplySetRemoved(r);
        break;
      case LogRecord::kJoined:
        status = ApplyJoined(r);
        break;
      case LogRecord::kLeft:
        status = ApplyLeft(r);
        break;
      case LogRecord::kStallQuery:
        status = ApplyStallQuery(r);
        break;
      case LogRecord::kAbort: {
        const Status reason = ReadStatus(r);
        if (r->ok()) DoAbort(reason, true);
        break;
      }
      default:
        return Wrong("it holds an unknown log record");
    }
    if (!status.ok() || !r->ok()) return status;
  }
  return {};
}

Status Node::Impl::ApplyDefine(ByteReader* r) {
  const uint32_t id = r->Varint32();
  auto request = std::make_shared<Request>(ReadRequest(r));
  if (!r->ok()) return {};
  if (id > cache.size() || IsControl(request->type)) return Wrong("it defines an id out of turn");
  const ProcessSet* set = sets.Find(request->process_set);
  if (!set || !set->dead.ok()) return Wrong("it defines an id for a process set that is not there");
  const NameView key{request->process_set, request->name};
  if (const int32_t before = cache.IdOf(key); before >= 0 && before != static_cast<int32_t>(id)) {
    return Wrong("it defines a second id for '" + request->name + "'");
  }
  ++version;
  if (id < cache.size() && cache.at(id).request) RetireMeaning(id);
  cache.Define(id, std::move(request), version);
  const Slot& s = cache.at(id);
  cache.at(id).in_tally = tallies.Find({s.process_set, s.request->name}) != nullptr;
  return {};
}

// The id is about to mean something else. Marks that stand go on as contributions to the name; marks on their way are
// read as they were meant.
void Node::Impl::RetireMeaning(uint32_t id) {
  const Slot::State state = cache.at(id).state;
  const std::shared_ptr<const Request> request = cache.at(id).request;
  const NameView key{request->process_set, request->name};
  Tally* t = tallies.Find(key);
  if (state != Slot::kIdle) {
    t = &OpenTally(key, request->type, cache.at(id).since);
    if (state == Slot::kComplete) {  // passed up already
      t->complete = true;
      --incomplete;
    }
  }
  if (t) {
    for (Part& p : t->parts) {
      if (p.id == static_cast<int32_t>(id)) p.id = -1;
    }
  }
  if (place.children.empty()) return;
  const uint64_t oldest = OldestLink();
  std::erase_if(old_meanings, [&](const OldMeaning& m) { return m.until <= oldest; });
  old_meanings.push_back({id, cache.at(id).meaning_from, version, request});
}

uint64_t Node::Impl::OldestLink() const {
  return place.children.empty() ? version : *std::min_element(link_version.begin() + 1, link_version.end());
}

// One entry of a batch: what was agreed, and this rank's ticket. Its marks are used up.
Status Node::Impl::TakeEntry(ByteReader* r, Entry* entry) {
  const uint64_t code = r->Varint();
  if (code == 0) {
    entry->request = std::make_shared<Request>(ReadRequest(r));
    if (!r->ok()) return {};
    const NameView key{entry->request->process_set, entry->request->name};
    if (Tally* t = tallies.Find(key)) entry->ticket = t->own_ticket;
    EraseTally(key);
    return {};
  }
  if (code > cache.size() || !cache.at(static_cast<uint32_t>(code - 1)).request) {
    return Wrong("it runs id " + std::to_string(code - 1) + ", which means nothing");
  }
  const auto id = static_cast<uint32_t>(code - 1);
  Slot& s = cache.at(id);
  entry->request = s.request;
  entry->ticket = s.own_ticket;
  if (s.in_tally) {
    const NameView key{s.process_set, s.request->name};
    if (Tally* t = tallies.Find(key)) entry->ticket = t->own_ticket;
    EraseTally(key);
  }
  ResetSlot(id);
  if (is_root()) cache.Touch(id);
  return {};
}

// All ranks count alike, also those that took no part because they had joined.
void Node::Impl::NoteSetChange(const std::string& name) {
  const size_t prefix = std::char_traits<char>::length(kSetChangePrefix);
  if (name.compare(0, prefix, kSetChangePrefix) != 0) return;
  uint64_t number = 0;
  for (size_t i = prefix; i < name.size() && i < prefix + 18; ++i) {
    if (name[i] < '0' || name[i] > '9') return;
    number = number * 10 + static_cast<uint64_t>(name[i] - '0');
  }
  set_changes = std::max(set_changes, number + 1);
}

Status Node::Impl::ApplyBatch(ByteReader* r) {
  RankSet joined = ReadRanks(r, place.size);
  const size_t n = r->Count();
  if (n == 0) r->Fail();
  Action a;
  a.kind = Action::Kind::kExecute;
  a.seq = ++seq;
  a.entries.resize(n);
  const ProcessSet* set = nullptr;
  for (size_t i = 0; i < n; ++i) {
    Entry& e = a.entries[i];
    HVD_TRY(TakeEntry(r, &e));
    if (!r->ok()) return {};
    if (i == 0) {
      a.process_set = e.request->process_set;
      set = sets.Find(a.process_set);
      if (!set || !set->dead.ok()) return Wrong("it runs a batch of a process set that is not there");
    }
    if (e.request->process_set != a.process_set || IsControl(e.request->type))
      return Wrong("it mixes what cannot run together");
    if (set->own && e.ticket == 0 && !(own_joined && a.process_set == 0)) {
      return Wrong("it runs '" + e.request->name + "', which this rank has not submitted");
    }
  }
  if (!set || !set->own) return {};
  a.ranks = joined.ToVector();
  actions.push_back(std::move(a));
  return {};
}

Status Node::Impl::ApplyFail(ByteReader* r, double now) {
  const NameKey key{static_cast<int32_t>(r->Varint32(INT32_MAX)), std::string(r->Text())};
  std::vector<uint64_t> groups(r->Count(8));
  for (uint64_t& hash : groups) hash = r->U64();
  const Status why = ReadStatus(r);
  if (!r->ok()) return {};
  NoteSetChange(key.name);
  uint64_t ticket = 0;
  OpType type = OpType::kAllreduce;
  if (const int32_t id = cache.IdOf(key); id >= 0) {
    const Slot& s = cache.at(static_cast<uint32_t>(id));
    ticket = s.own_ticket;
    type = s.request->type;
    ResetSlot(static_cast<uint32_t>(id));
  }
  if (Tally* t = tallies.Find(key)) {
    ticket = t->own_ticket;
    type = t->type;
    EraseTally(key);
  }
  if (ticket != 0) ActFail(type, key.set, key.name, ticket, why);
  if (!groups.empty()) DropGroups(key.set, groups, why);
  RetryDeferred(now);  // only now: what waited for this failure belongs to the next group of that name
  return {};
}

void Node::Impl::DropGroups(int set, const std::vector<uint64_t>& hashes, const Status& why) {
  ++version;
  const uint64_t oldest = OldestLink();
  std::erase_if(dropped_groups, [&](const DroppedGroup& g) { return g.version <= oldest; });
  for (uint64_t h : hashes) dropped_groups.push_back({set, h, version});

  auto dropped = [&](uint64_t hash) { return std::find(hashes.begin(), hashes.end(), hash) != hashes.end(); };
  std::vector<Request> failed;
  for (uint32_t id = 0; id < cache.size(); ++id) {
    Slot& s = cache.at(id);
    if (!s.request || s.process_set != set || !dropped(s.request->group_hash)) continue;
    if (s.own_ticket != 0) {
      failed.push_back(*s.request);
      failed.back().ticket = s.own_ticket;
    }
    ResetSlot(id);
    s.valid_from = version;
  }
  const auto stale = [&](const Part& p) { return dropped(p.group_hash()); };
  for (const NameKey& key : tallies.NamesOf(set)) DropFromTally(tallies.Find(key), stale, &failed);
  for (uint64_t h : hashes) coordinator.DropGroup(set, h);
  for (const Request& q : failed) ActFail(q.type, set, q.name, q.ticket, why);
}

Status Node::Impl::ApplySetAdded(ByteReader* r) {
  const NameKey key{0, std::string(r->Text())};
  const auto id = static_cast<int>(r->Varint32(INT32_MAX));
  RankSet ranks = ReadRanks(r, place.size);
  if (!r->ok()) return {};
  if (id != sets.FreeId() || ranks.empty()) return Wrong("it adds a process set that cannot be");
  NoteSetChange(key.name);
  Action a;
  a.kind = Action::Kind::kSetAdded;
  if (Tally* t = tallies.Find(key)) a.ticket = t->own_ticket;
  EraseTally(key);
  a.process_set = id;
  a.ranks = ranks.ToVector();
  sets.Add(id, std::move(ranks), ++version);
  actions.push_back(std::move(a));
  return {};
}

// Every operation of the set, own or passing through, is over.
void Node::Impl::KillSet(int id, const Status& why) {
  for (uint32_t i = 0; i < cache.size(); ++i) {
    Slot& s = cache.at(i);
    if (!s.request || s.process_set != id) continue;
    if (s.own_ticket != 0) {
      Request q = *s.request;
      q.ticket = s.own_ticket;
      FailOwn(q, why);
    }
    ResetSlot(i);
    cache.Clear(i, version);
  }
  for (const NameKey& key : tallies.NamesOf(id)) {
    Tally* t = tallies.Find(key);
    if (t->own_ticket != 0) {
      ActFail(t->type, id, key.name, t->own_ticket, why.Because(Subject(t->type, key.name, id)));
    }
    EraseTally(key);
  }
  std::vector<Deferred> kept;
  for (Deferred& d : deferred) {
    if (d.group.front().process_set != id) {
      kept.push_back(std::move(d));
      continue;
    }
    for (const Request& q : d.group) {
      if (!d.refusal) FailOwn(q, why);
    }
  }
  deferred = std::move(kept);
  coordinator.DropSet(id);
}

Status Node::Impl::ApplySetRemoved(ByteReader* r) {
  const NameKey key{0, std::string(r->Text())};
  const auto id = static_cast<int>(r->Varint32(INT32_MAX));
  if (!r->ok()) return {};
  if (id == 0 || !sets.Find(id)) return Wrong("it removes a process set that is not there");
  NoteSetChange(key.name);
  Action a;
  a.kind = Action::Kind::kSetRemoved;
  if (Tally* t = tallies.Find(key)) a.ticket = t->own_ticket;
  EraseTally(key);
  a.process_set = id;
  ++version;
  KillSet(id, {Code::kInvalidArgument, "process set " + std::to_string(id) + " was removed while it was waiting"});
  sets.Remove(id);
  if (id >= static_cast<int>(set_gone.size())) set_gone.resize(id + 1, 0);
  set_gone[id] = version;
  actions.push_back(std::move(a));
  return {};
}

Status Node::Impl::ApplyJoined(ByteReader* r) {
  Action a;
  a.kind = Action::Kind::kJoined;
  a.rank = static_cast<int>(r->Varint32(INT32_MAX));
  if (!r->ok()) return {};
  if (!own_joined || a.rank >= place.size) return Wrong("it ends a join that this rank is not part of");
  ++version;
  a.ticket = join_ticket;
  own_joined = all_joined = false;
  joined_below = {};
  coordinator.joined = {};
  sets.ResetJoined();
  actions.push_back(std::move(a));
  return {};
}

Status Node::Impl::ApplyLeft(ByteReader* r) {
  const auto rank = static_cast<int>(r->Varint32(INT32_MAX));
  if (!r->ok()) return {};
  if (rank >= place.size || left.Contains(rank))
    return Wrong("it says that rank " + std::to_string(rank) + " left, which cannot be");
  ++version;
  left.Add(rank);
  const bool ends_log = place.inner.Contains(rank) && place.size > 1;
  cut |= ends_log;
  for (int id : sets.Ids()) {
    ProcessSet& set = sets.at(id);
    if (!set.dead.ok() || !(ends_log || set.ranks.Contains(rank))) continue;
    std::string text = "rank " + std::to_string(rank) + " has shut down";
    text += set.ranks.Contains(rank)
                ? ", and process set " + std::to_string(id) +
                      " needs it; give all ranks equally many steps, or call join() on those that have fewer"
                : ", and other ranks were connected through it";
    set.dead = Status(Code::kShutdown, std::move(text));
    set.valid_from = version;
    KillSet(id, set.dead);
    if (id == 0 && (own_joined || join_waits)) {
      ActFail(OpType::kJoin, 0, "join", join_ticket, set.dead.Because("join"));
      own_joined = join_waits = false;
    }
  }
  if (place.SourceOfNeighbour(rank) > 0) leaving_children.push_back(rank);
  Action a;
  a.kind = Action::Kind::kLeft;
  a.rank = rank;
  own_left |= rank == place.rank;
  actions.push_back(a);
  if (cut && goodbye && !own_left) {  // nobody is left to confirm it
    own_left = true;
    a.rank = place.rank;
    actions.push_back(std::move(a));
  }
  return {};
}

}  // namespace hvd
