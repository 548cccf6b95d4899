#include "negotiation/state/marks.h"

#include <algorithm>
#include <utility>

#include "negotiation/values/pair.h"
#include "negotiation/values/signature.h"

namespace hvd::negotiation {
namespace {

// An own entry, as its failure names it.
Request OwnEntry(OpType type, NameView key, uint64_t ticket) {
  Request own;
  own.type = type;
  own.process_set = key.set;
  own.name = key.name;
  own.ticket = ticket;
  return own;
}

// Most often somebody sent the very same: share it.
void ShareRequest(Part* part, const Tally& tally) {
  if (!part->request || part->id >= 0) return;
  for (const Part& p : tally.parts) {
    if (!p.request || p.id >= 0 || p.request->transient != part->request->transient) continue;
    if (!SameSignature(*p.request, *part->request)) continue;
    part->request = p.request;
    return;
  }
}

}  // namespace

Marks::Own Marks::OwnUnder(NameView key) const {
  if (const Tally* t = tallies_.Find(key)) {
    return t->own_refusal ? Own::kRefusal : t->Has(0) ? Own::kSubmission : Own::kNothing;
  }
  const int32_t id = cache_.IdOf(key);
  return id >= 0 && HasSource(cache_.mask(static_cast<uint32_t>(id)), 0) ? Own::kSubmission : Own::kNothing;
}

// ---- contributions

bool Marks::TryMarkOwn(const Request& own, double now) {
  const int32_t known = cache_.IdOf(own.key());
  if (known < 0) return false;
  const auto id = static_cast<uint32_t>(known);
  CachedRequest& s = cache_.at(id);
  if (s.in_tally || HasSource(cache_.mask(id), 0) || !sets_.at(s.process_set).own) return false;
  if (!SameSignature(*s.request, own)) return false;
  s.own_ticket = own.ticket;
  ++own_waiting_;
  if (own.payload != nullptr) {
    std::vector<Payload> mine(1);
    mine[0] = {place_.rank, *own.payload};
    Bring(id, std::move(mine));
  }
  Mark(id, 0, now);
  return true;
}

void Marks::Bring(uint32_t id, std::vector<Payload> payloads) {
  const CachedRequest& s = cache_.at(id);
  if (s.request->group_hash != 0) return;
  const bool of_host = place_.leads() && place_.host().Contains(payloads.front().rank);
  payloads_.Add(id, std::move(payloads));
  if (of_host && IsDirect(id) && HostHasBrought(id)) SendHosts(id);
}

bool Marks::MarkOfChild(uint32_t id, int source, std::vector<Payload> payloads, double now) {
  const CachedRequest& s = cache_.at(id);
  if (!s.in_tally) {
    if (s.state == CachedRequest::kComplete || HasSource(cache_.mask(id), source)) return false;
    if (!payloads.empty()) Bring(id, std::move(payloads));
    Mark(id, source, now);
    return true;
  }
  const Tally* t = tallies_.Find(s.request->key());
  if (t->Has(source) || t->complete) return false;
  // The leader has sent it to the others, too: they may be done by it.
  if (place_.root() && IsDirect(id) && !payloads.empty() && !place_.host().Contains(payloads.front().rank))
    payloads_.Add(id, std::move(payloads));
  RankSet ranks = place_.below[source].And(sets_.MembersOf(s.request->key()));
  std::vector<Part> parts(1, {source, s.request, {}, 0, static_cast<int32_t>(id), std::move(ranks)});
  Add(s.request->key(), t->type, std::move(parts), now);
  return true;
}

void Marks::AddOwn(const Request& own, const std::optional<std::string>& refusal, double now) {
  if (!refusal && TryMarkOwn(own, now)) return;
  Part part;
  part.ranks = RankSet::Of(place_.rank);
  const int32_t id = cache_.IdOf(own.key());
  if (refusal) {
    part.refusal = *refusal;
    part.refused_group = own.group_hash;
  } else if (id >= 0 && SameSignature(*cache_.at(static_cast<uint32_t>(id)).request, own)) {
    part.id = id;
    part.request = cache_.at(static_cast<uint32_t>(id)).request;
  } else {
    auto request = std::make_shared<Request>(own);
    request->ticket = 0;
    part.request = std::move(request);
  }
  Tally& t = OpenTally(own.key(), own.type, now);
  t.own_ticket = refusal ? 0 : own.ticket;
  own_waiting_ += t.own_ticket != 0;
  t.own_refusal = refusal.has_value();
  t.Add(std::move(part));
  Contributed(&t);
}

void Marks::Add(NameView key, OpType type, std::vector<Part> parts, double now) {
  Tally& t = OpenTally(key, type, now);
  for (Part& part : parts) {
    ShareRequest(&part, t);
    t.Add(std::move(part));
  }
  Contributed(&t);
}

void Marks::RecheckGlobalSet(double now) {
  for (uint32_t id = 0; id < cache_.size(); ++id) {
    const CachedRequest& s = cache_.at(id);
    if (s.process_set == 0 && s.state == CachedRequest::kPartial && Covers(cache_.mask(id), NeedOf(id)))
      CompleteCached(id, now);
  }
  for (const NameKey& key : tallies_.NamesOf(0)) Contributed(tallies_.Find(key));
}

const Tally* Marks::NextToDecide() {
  while (!to_decide_.empty()) {
    const NameKey key = std::move(to_decide_.front());
    to_decide_.pop_front();
    const Tally* t = tallies_.Find(key);
    if (t && t->complete) return t;  // else it was taken back since
  }
  return nullptr;
}

// ---- when a subtree is complete

void Marks::CompleteCached(uint32_t id, double now) {
  CachedRequest& s = cache_.at(id);
  // Joined ranks that sent nothing make it incomplete as seen from above: say exactly who contributed.
  if (s.process_set == 0 && !s.pair && sets_.any_joined() && !Covers(cache_.mask(id), sets_.at(0).members)) {
    CompleteTally(&OpenTally({0, s.request->name}, s.request->type, s.since));
    return;
  }
  s.state = CachedRequest::kComplete;
  --incomplete_;
  if (payloads_.any() && CompleteWithPayloads(id)) return;
  if (place_.root()) {
    ready_->Agreed(s.request, static_cast<int32_t>(id), now);
  } else {
    out_->Mark(id);
  }
}

// False: not all members below have brought something.
bool Marks::CompleteWithPayloads(uint32_t id) {
  if (IsDirect(id) && place_.leads()) return CompleteDirectly(id);
  const RankSet members = place_.subtree.And(sets_.at(cache_.at(id).process_set).ranks);
  std::vector<Payload> payloads = payloads_.Take(id, static_cast<size_t>(members.count()));
  if (payloads.empty()) return false;
  if (place_.root()) {
    ready_->Brought(id, std::move(payloads));
  } else {
    ByteWriter w = out_->Up(UpRecord::kPayloads);
    w.Varint(id);
    WritePayloads(payloads, &w);
  }
  return true;
}

void Marks::Contributed(Tally* tally) {
  if (!tally->complete && Covers(tally->mask.data(), sets_.NeedOf(tally->key))) CompleteTally(tally);
}

void Marks::CompleteTally(Tally* tally) {
  tally->complete = true;
  --incomplete_;
  if (place_.root()) {
    const int32_t id = cache_.IdOf(tally->key);
    if (id >= 0 && AllHaveBrought(static_cast<uint32_t>(id))) {
      whole_.push_back(static_cast<uint32_t>(id));
    } else {
      to_decide_.push_back(tally->key);
    }
  } else {
    ByteWriter w = out_->Up(UpRecord::kTally);
    WriteTally(*tally, &w);
  }
}

// ---- without the log

bool Marks::HasBrought(uint32_t id, int rank) const {
  const std::vector<Payload>& there = payloads_.Of(id);
  return std::any_of(there.begin(), there.end(), [rank](const Payload& p) { return p.rank == rank; });
}

bool Marks::HostHasBrought(uint32_t id) const {
  const std::vector<Payload>& there = payloads_.Of(id);
  return std::count_if(there.begin(), there.end(),
                       [this](const Payload& p) { return place_.host().Contains(p.rank); }) == place_.host().count();
}

void Marks::SendHosts(uint32_t id) {
  ByteWriter w = out_->Beside();
  w.Varint(id);
  WriteTurn(cache_.at(id).turn, &w);
  WritePayloadsOf(place_.host(), payloads_.Of(id), &w);
}

bool Marks::AllHaveBrought(uint32_t id) const {
  return IsDirect(id) && static_cast<int>(payloads_.Of(id).size()) == place_.size;
}

void Marks::BringBeside(uint32_t id, std::vector<Payload> payloads) {
  payloads_.Add(id, std::move(payloads));
  if (AllHaveBrought(id) && cache_.at(id).state == CachedRequest::kComplete) whole_.push_back(id);
}

std::vector<Payload> Marks::TakePayloadsOfAll(uint32_t id) {
  const CachedRequest& s = cache_.at(id);
  const bool complete = s.in_tally ? tallies_.Find(s.request->key())->complete : s.state == CachedRequest::kComplete;
  if (!complete) return {};
  return payloads_.Take(id, static_cast<size_t>(place_.size));
}

uint64_t Marks::UseDirect(uint32_t id) {
  ++cache_.at(id).turn.direct;
  return UseUp(id);
}

// The leader of a host: false: its mark, or the root's decision, says that not all have brought something.
bool Marks::CompleteDirectly(uint32_t id) {
  const bool all = AllHaveBrought(id);
  if (all) {
    whole_.push_back(id);
  } else if (place_.root()) {
    payloads_.Drop(id);
  }
  return all || (!place_.root() && HostHasBrought(id));  // which has gone to the root, as to all leaders
}

// ---- from cached requests to tallies, and the end of both

Tally& Marks::OpenTally(NameView key, OpType type, double now) {
  if (Tally* t = tallies_.Find(key)) return *t;
  ++incomplete_;
  Tally& t = tallies_.Create(key, type, MaskWords(place_), now);
  if (const int32_t id = cache_.IdOf(key); id >= 0) FoldCached(static_cast<uint32_t>(id), &t);
  return t;
}

void Marks::FoldCached(uint32_t id, Tally* tally) {
  CachedRequest& s = cache_.at(id);
  s.in_tally = true;
  if (s.state == CachedRequest::kIdle) return;
  const RankSet members = sets_.MembersOf(s.request->key());
  for (int source = 0; source < place_.sources(); ++source) {
    if (!HasSource(cache_.mask(id), source)) continue;
    tally->Add({source, s.request, {}, 0, static_cast<int32_t>(id), place_.below[source].And(members)});
  }
  tally->since = std::min(tally->since, s.since);
  tally->own_ticket = s.own_ticket;
  own_waiting_ += s.own_ticket != 0;  // ResetMarks takes it back
  // What other leaders have sent to all lies there, too: if what opens the tally is taken back, they may all be done.
  if (!place_.root() || !IsDirect(id)) payloads_.Drop(id);
  ResetMarks(id);
}

void Marks::ResetCached(uint32_t id) {
  payloads_.Drop(id);
  ResetMarks(id);
}

void Marks::ResetMarks(uint32_t id) {
  const CachedRequest& s = cache_.at(id);
  incomplete_ -= s.state == CachedRequest::kPartial;
  own_waiting_ -= s.own_ticket != 0;
  cache_.ResetMarks(id);
}

void Marks::EraseTally(NameView key) {
  const Tally* t = tallies_.Find(key);
  if (!t) return;
  incomplete_ -= !t->complete;
  own_waiting_ -= t->own_ticket != 0;
  if (const int32_t id = cache_.IdOf(key); id >= 0) cache_.at(static_cast<uint32_t>(id)).in_tally = false;
  tallies_.Erase(key);
}

void Marks::DropFromTally(Tally* tally, const std::function<bool(const Part&)>& stale, std::vector<Request>* own) {
  const auto mine = std::find_if(tally->parts.begin(), tally->parts.end(), [](const Part& p) { return p.source == 0; });
  if (mine != tally->parts.end() && mine->request && stale(*mine)) {
    const uint64_t ticket = std::exchange(tally->own_ticket, 0);
    own_waiting_ -= ticket != 0;
    own->push_back(OwnEntry(mine->request->type, tally->key, ticket));
  }
  const bool was_complete = tally->complete;
  if (!tally->DropSources(stale)) return;
  if (!tally->Has(0)) tally->own_refusal = false;
  incomplete_ += was_complete;
  // It may be complete again below: then it is decided once, not twice.
  if (was_complete) std::erase_if(to_decide_, [&](const NameKey& key) { return NameEqual()(key, tally->key); });
  if (tally->empty()) {
    EraseTally(NameKey(tally->key));
  } else {
    Contributed(tally);  // the rest may be all that is needed: others may have joined
  }
}

// ---- what the log says

void Marks::Define(uint32_t id, std::shared_ptr<const Request> request) {
  const bool in_tally = tallies_.Find(request->key()) != nullptr;
  const bool pair = PairOf(request->name).has_value();
  if (pair) pair_needs_[id] = sets_.NeedOf(request->key());
  cache_.Define(id, std::move(request));
  cache_.at(id).in_tally = in_tally;
  cache_.at(id).pair = pair;
}

uint64_t Marks::UseCached(uint32_t id) {
  cache_.at(id).turn.LogAnswered();
  return UseUp(id);
}

uint64_t Marks::UseUp(uint32_t id) {
  const CachedRequest& s = cache_.at(id);
  const uint64_t ticket = s.in_tally ? UseTally(s.request->key()) : s.own_ticket;
  ResetCached(id);
  return ticket;
}

uint64_t Marks::UseTally(NameView key) {
  const Tally* t = tallies_.Find(key);
  const uint64_t ticket = t ? t->own_ticket : 0;
  EraseTally(key);
  return ticket;
}

Request Marks::Fail(NameView key, uint64_t version) {
  Request own = OwnEntry(OpType::kAllreduce, key, 0);
  if (const int32_t known = cache_.IdOf(key); known >= 0) {
    const auto id = static_cast<uint32_t>(known);
    own.ticket = cache_.at(id).own_ticket;
    own.type = cache_.at(id).request->type;
    ResetCached(id);
    cache_.at(id).turn.LogAnswered();
    if (version != 0) cache_.at(id).valid_from = version;
  }
  if (const Tally* t = tallies_.Find(key)) {
    own.ticket = t->own_ticket;
    own.type = t->type;
    EraseTally(key);
  }
  return own;
}

std::vector<Request> Marks::DropGroups(int process_set, const std::vector<uint64_t>& hashes, uint64_t version) {
  const auto dropped = [&](uint64_t hash) { return std::find(hashes.begin(), hashes.end(), hash) != hashes.end(); };
  std::vector<Request> own;
  for (uint32_t id = 0; id < cache_.size(); ++id) {
    CachedRequest& s = cache_.at(id);
    if (!s.request || s.process_set != process_set || !dropped(s.request->group_hash)) continue;
    if (s.own_ticket != 0) own.push_back(OwnEntry(s.request->type, s.request->key(), s.own_ticket));
    ResetCached(id);
    s.turn.LogAnswered();
    s.valid_from = version;
  }
  const auto stale = [&](const Part& p) { return dropped(p.group_hash()); };
  for (const NameKey& key : tallies_.NamesOf(process_set)) DropFromTally(tallies_.Find(key), stale, &own);
  return own;
}

std::vector<Request> Marks::DropSet(int process_set, uint64_t version) {
  std::vector<Request> own;
  for (uint32_t id = 0; id < cache_.size(); ++id) {
    const CachedRequest& s = cache_.at(id);
    if (!s.request || s.process_set != process_set) continue;
    if (s.own_ticket != 0) own.push_back(OwnEntry(s.request->type, s.request->key(), s.own_ticket));
    ResetCached(id);
    cache_.Clear(id, version);
  }
  for (const NameKey& key : tallies_.NamesOf(process_set)) {
    const Tally& t = *tallies_.Find(key);
    if (t.own_ticket != 0) own.push_back(OwnEntry(t.type, key, t.own_ticket));
    EraseTally(key);
  }
  return own;
}

}  // namespace hvd::negotiation
