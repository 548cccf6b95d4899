// Frames from children: marks, tallies, joins, goodbyes. A record that cannot be right is an error that says why.
#include <algorithm>

#include "negotiation/node_impl.h"

namespace hvd {
namespace {

Status Wrong(const std::string& what) { return {Code::kInternal, what}; }

}  // namespace

Status Node::Impl::ReceiveUp(int source, ByteReader* r, double now) {
  while (!r->AtEnd()) {
    Status status;
    switch (static_cast<UpRecord>(r->U8())) {
      case UpRecord::kVersion:
        status = UpVersion(source, r);
        break;
      case UpRecord::kMarks:
        status = UpMarks(source, r, now);
        break;
      case UpRecord::kTally:
        status = UpTally(source, r, now);
        break;
      case UpRecord::kJoined:
        status = UpJoined(source, r);
        break;
      case UpRecord::kAllJoined:
        status = UpAllJoined(source, now);
        break;
      case UpRecord::kGoodbye:
        status = UpGoodbye(source, r);
        break;
      case UpRecord::kAbort: {
        const Status reason = ReadStatus(r);
        if (r->ok()) DoAbort(reason, false);
        return {};
      }
      case UpRecord::kStallNotice:
        status = UpStallNotice(r, now);
        break;
      case UpRecord::kStallReport:
        status = UpStallReport(source, r, now);
        break;
      default:
        return Wrong("it holds an unknown record");
    }
    if (!status.ok() || !r->ok()) return status;
  }
  return {};
}

Status Node::Impl::UpVersion(int source, ByteReader* r) {
  const uint64_t v = r->Varint();
  if (v < link_version[source] || v > version) return Wrong("it is ahead of or behind the log");
  link_version[source] = v;
  return {};
}

Status Node::Impl::UpMarks(int source, ByteReader* r, double now) {
  const uint32_t n = r->U32();
  const uint64_t sent_at = link_version[source];
  const size_t word = static_cast<size_t>(source) >> 6;
  const uint64_t bit = uint64_t{1} << (source & 63);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t id = r->Varint32();
    if (!r->ok()) return {};
    if (id >= cache.size()) return Wrong("it marks id " + std::to_string(id) + ", which was never given");
    Slot& s = cache.at(id);
    if (s.valid_from > sent_at) {
      HVD_TRY(UpOldMark(source, id, now));
      continue;
    }
    if (!s.request) return Wrong("it marks id " + std::to_string(id) + ", which means nothing");
    if (!(sets.at(s.process_set).members[word] & bit)) {
      return Wrong("it marks '" + s.request->name + "' of a process set it is not in");
    }
    if (s.in_tally) {
      Tally* t = tallies.Find({s.process_set, s.request->name});
      HVD_TRY(AddCached(t, source, s.request, static_cast<int32_t>(id)));
      continue;
    }
    if ((cache.mask(id)[word] & bit) || s.state == Slot::kComplete)
      return Wrong("it marks '" + s.request->name + "' twice");
    MarkSlot(id, source, now);
  }
  return {};
}

Status Node::Impl::AddCached(Tally* t, int source, std::shared_ptr<const Request> request, int32_t id) {
  if (t->Has(source) || t->complete) return Wrong("it marks '" + t->key.name + "' twice");
  RankSet ranks = place.below[source].And(sets.at(t->key.set).ranks);
  t->Add({source, std::move(request), {}, 0, id, std::move(ranks)});
  Contributed(t);
  return {};
}

// What the id meant when the sender's version was sent_at; null: nothing that still counts.
std::shared_ptr<const Request> Node::Impl::Meaning(uint32_t id, uint64_t sent_at) const {
  if (id < cache.size() && cache.at(id).meaning_from <= sent_at) return cache.at(id).request;
  for (const OldMeaning& m : old_meanings) {
    if (m.id == id && m.from <= sent_at && sent_at < m.until) return m.request;
  }
  return nullptr;
}

Status Node::Impl::UpOldMark(int source, uint32_t id, double now) {
  const uint64_t sent_at = link_version[source];
  const std::shared_ptr<const Request> request = Meaning(id, sent_at);
  if (!request || !sets.Find(request->process_set) || IsVoid(request->process_set, request->group_hash, sent_at))
    return {};
  if (place.below[source].And(sets.at(request->process_set).ranks).empty()) {
    return Wrong("it marks '" + request->name + "' of a process set it is not in");
  }
  // The name has no id any more, or its id was given anew: it cannot have run without this mark.
  return AddCached(&OpenTally({request->process_set, request->name}, request->type, now), source, request, -1);
}

bool Node::Impl::IsVoid(int process_set, uint64_t group_hash, uint64_t sent_at) const {
  const ProcessSet* set = sets.Find(process_set);
  if (set ? set->valid_from > sent_at
          : process_set < static_cast<int>(set_gone.size()) && set_gone[process_set] > sent_at) {
    return true;
  }
  return group_hash != 0 && std::any_of(dropped_groups.begin(), dropped_groups.end(), [&](const DroppedGroup& g) {
           return g.hash == group_hash && g.process_set == process_set && g.version > sent_at;
         });
}

bool Node::Impl::IsVoid(const WireTally& tally, int source) const {
  const uint64_t sent_at = link_version[source];
  if (IsVoid(tally.process_set, 0, sent_at)) return true;
  return std::any_of(tally.variants.begin(), tally.variants.end(), [&](const WireVariant& v) {
    uint64_t hash = v.kind == WireVariant::Kind::kRequest ? v.request.group_hash : v.refused_group;
    if (v.kind == WireVariant::Kind::kCached) {
      const std::shared_ptr<const Request> request = Meaning(v.id, sent_at);
      hash = request ? request->group_hash : 0;
    }
    return IsVoid(tally.process_set, hash, sent_at);
  });
}

Status Node::Impl::CheckTally(const WireTally& tally, int source) {
  const ProcessSet* set = sets.Find(tally.process_set);
  if (!set) return Wrong("it names process set " + std::to_string(tally.process_set) + ", which does not exist");
  if (!set->dead.ok()) return Wrong("it uses process set " + std::to_string(tally.process_set) + ", which has ended");
  const RankSet may = place.below[source].And(set->ranks);
  for (const WireVariant& v : tally.variants) {
    if (!v.ranks.Minus(may).empty()) return Wrong("it speaks for ranks that are not below its sender");
    if (v.kind == WireVariant::Kind::kCached) {
      const std::shared_ptr<const Request> request = Meaning(v.id, link_version[source]);
      if (!request || request->process_set != tally.process_set || request->name != tally.name) {
        return Wrong("it names id " + std::to_string(v.id) + " for '" + tally.name + "', which it is not");
      }
    }
  }
  const NameView key{tally.process_set, tally.name};
  bool twice = false;
  if (Tally* t = tallies.Find(key)) {
    twice = t->Has(source) || t->complete;
  } else if (const int32_t id = cache.IdOf(key); id >= 0) {
    const auto slot = static_cast<uint32_t>(id);
    twice = cache.at(slot).state == Slot::kComplete || ((cache.mask(slot)[source / 64] >> (source % 64)) & 1);
  }
  return twice ? Wrong("it contributes to '" + tally.name + "' twice") : Status();
}

Status Node::Impl::UpTally(int source, ByteReader* r, double now) {
  WireTally w = ReadTally(r, place.size);
  if (!r->ok() || IsVoid(w, source)) return {};
  HVD_TRY(CheckTally(w, source));
  Tally& t = OpenTally({w.process_set, w.name}, w.type, now);
  for (WireVariant& v : w.variants) {
    Part p;
    p.source = source;
    p.ranks = std::move(v.ranks);
    if (v.kind == WireVariant::Kind::kCached) {
      p.request = Meaning(v.id, link_version[source]);
      if (v.id < cache.size() && cache.at(v.id).request == p.request) p.id = static_cast<int32_t>(v.id);
    } else if (v.kind == WireVariant::Kind::kRequest) {
      for (const Part& q : t.parts) {  // most often somebody sent the very same: share it
        if (q.request && q.id < 0 && q.request->transient == v.request.transient &&
            SameSignature(*q.request, v.request)) {
          p.request = q.request;
          break;
        }
      }
      if (!p.request) p.request = std::make_shared<Request>(std::move(v.request));
    } else {
      p.refusal = std::move(v.refusal);
      p.refused_group = v.refused_group;
    }
    t.Add(std::move(p));
  }
  Contributed(&t);
  return {};
}

Status Node::Impl::UpJoined(int source, ByteReader* r) {
  const int rank = static_cast<int>(r->Varint32(INT32_MAX));
  if (!r->ok()) return {};
  if (!place.below[source].Contains(rank) || joined_below.Contains(rank)) {
    return Wrong("it says that rank " + std::to_string(rank) + " has joined, which cannot be");
  }
  joined_below.Add(rank);
  if (is_root()) {
    coordinator.joined.Add(rank);
    coordinator.last_joined = rank;
  } else {
    out.Up(UpRecord::kJoined, version).Varint(static_cast<uint32_t>(rank));
  }
  return {};
}

Status Node::Impl::UpAllJoined(int source, double now) {
  if (!place.below[source].Minus(joined_below).empty())
    return Wrong("it says that all ranks below have joined, which cannot be");
  sets.SourceJoined(source);
  RecheckGlobalSet(now);
  CheckAllJoined();
  return {};
}

Status Node::Impl::UpGoodbye(int source, ByteReader* r) {
  const int rank = static_cast<int>(r->Varint32(INT32_MAX));
  if (!r->ok()) return {};
  if (!place.below[source].Contains(rank))
    return Wrong("it says goodbye for rank " + std::to_string(rank) + ", which is not below");
  if (is_root()) {
    to_leave.push_back(rank);
  } else {
    out.Up(UpRecord::kGoodbye, version).Varint(static_cast<uint32_t>(rank));
  }
  return {};
}

}  // namespace hvd
