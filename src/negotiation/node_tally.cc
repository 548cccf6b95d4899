// Contributions: marks of cached ids, tallies of everything else, and what happens when a subtree is complete.
#include <algorithm>

#include "negotiation/node_impl.h"

namespace hvd {

void Node::Impl::CompleteSlot(uint32_t id, double now) {
  Slot& s = cache.at(id);
  // Joined ranks that sent nothing make it incomplete as seen from above: say exactly who contributed.
  if (s.process_set == 0 && !joined_below.empty() && !Covers(cache.mask(id), sets.at(0).members)) {
    Tally& t = OpenTally({0, s.request->name}, s.request->type, s.since);
    CompleteTally(&t);
    return;
  }
  s.state = Slot::kComplete;
  --incomplete;
  if (is_root()) {
    coordinator.Agreed(s.request, static_cast<int32_t>(id), now);
  } else {
    out.Mark(id, version);
  }
}

void Node::Impl::ResetSlot(uint32_t id) {
  if (cache.at(id).state == Slot::kPartial) --incomplete;
  own_waiting -= cache.at(id).own_ticket != 0;
  cache.ResetMarks(id);
}

Tally& Node::Impl::OpenTally(NameView key, OpType type, double now) {
  if (Tally* t = tallies.Find(key)) return *t;
  Begun(now);
  Tally& t = tallies.Create(key, type, words, now);
  if (const int32_t id = cache.IdOf(key); id >= 0) FoldSlot(static_cast<uint32_t>(id), &t);
  return t;
}

void Node::Impl::FoldSlot(uint32_t id, Tally* tally) {
  Slot& s = cache.at(id);
  s.in_tally = true;
  if (s.state == Slot::kIdle) return;
  const ProcessSet& set = sets.at(s.process_set);
  const uint64_t* mask = cache.mask(id);
  for (int source = 0; source < place.sources(); ++source) {
    if ((mask[source / 64] >> (source % 64)) & 1) {
      tally->Add({source, s.request, {}, 0, static_cast<int32_t>(id), place.below[source].And(set.ranks)});
    }
  }
  tally->since = std::min(tally->since, s.since);
  tally->own_ticket = s.own_ticket;
  own_waiting += s.own_ticket != 0;  // ResetSlot takes it back
  ResetSlot(id);
}

void Node::Impl::Contributed(Tally* tally) {
  if (!tally->complete && tally->Covers(sets.at(tally->key.set).need)) CompleteTally(tally);
}

void Node::Impl::CompleteTally(Tally* tally) {
  tally->complete = true;
  --incomplete;
  if (is_root()) {
    to_decide.push_back(tally->key);
  } else {
    SendTally(*tally);
  }
}

void Node::Impl::SendTally(const Tally& tally) {
  ByteWriter w = out.Up(UpRecord::kTally, version);
  w.Varint(static_cast<uint32_t>(tally.key.set));
  w.U8(static_cast<uint8_t>(tally.type));
  w.Text(tally.key.name);
  const std::vector<Part> variants = tally.Merged();
  w.Varint(variants.size());
  for (const Part& p : variants) {
    if (!p.request) {
      w.U8(static_cast<uint8_t>(WireVariant::Kind::kRefusal));
      w.Text(p.refusal);
      w.U64(p.refused_group);
    } else if (p.id >= 0) {
      w.U8(static_cast<uint8_t>(WireVariant::Kind::kCached));
      w.Varint(static_cast<uint32_t>(p.id));
    } else {
      w.U8(static_cast<uint8_t>(WireVariant::Kind::kRequest));
      WriteRequestBody(*p.request, &w);
    }
    WriteRanks(p.ranks, &w);
  }
}

void Node::Impl::EraseTally(NameView key) {
  Tally* t = tallies.Find(key);
  if (!t) return;
  if (!t->complete) --incomplete;
  own_waiting -= t->own_ticket != 0;
  if (const int32_t id = cache.IdOf(key); id >= 0) cache.at(static_cast<uint32_t>(id)).in_tally = false;
  tallies.Erase(key);
}

void Node::Impl::DropFromTally(Tally* tally, const std::function<bool(const Part&)>& stale, std::vector<Request>* own) {
  const auto mine = std::find_if(tally->parts.begin(), tally->parts.end(), [](const Part& p) { return p.source == 0; });
  if (mine != tally->parts.end() && mine->request && stale(*mine)) {
    Request q = *mine->request;
    q.ticket = std::exchange(tally->own_ticket, 0);
    own_waiting -= q.ticket != 0;
    own->push_back(std::move(q));
  }
  const bool was_complete = tally->complete;
  if (!tally->DropSources(stale)) return;
  if (!tally->Has(0)) tally->own_refusal = false;
  if (was_complete) Begun(tally->since);
  if (tally->empty()) {
    EraseTally(NameKey(tally->key));
  } else {
    Contributed(tally);  // the rest may be all that is needed: others may have joined
  }
}

void Node::Impl::RecheckGlobalSet(double now) {
  const std::vector<uint64_t>& need = sets.at(0).need;
  for (uint32_t id = 0; id < cache.size(); ++id) {
    const Slot& s = cache.at(id);
    if (s.process_set == 0 && s.state == Slot::kPartial && Covers(cache.mask(id), need)) CompleteSlot(id, now);
  }
  for (const NameKey& key : tallies.NamesOf(0)) Contributed(tallies.Find(key));
}

void Node::Impl::CheckAllJoined() {
  if (all_joined) return;
  for (uint64_t word : sets.at(0).need) {
    if (word != 0) return;
  }
  all_joined = true;
  if (!is_root()) out.Up(UpRecord::kAllJoined, version);
}

bool Node::Impl::OwnPending(NameView key) {
  if (Tally* t = tallies.Find(key)) return t->Has(0);
  const int32_t id = cache.IdOf(key);
  return id >= 0 && (cache.mask(static_cast<uint32_t>(id))[0] & 1);
}

bool Node::Impl::OwnRefusalPending(NameView key) {
  Tally* t = tallies.Find(key);
  return t && t->own_refusal;
}

}  // namespace hvd
