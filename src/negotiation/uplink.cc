#include "negotiation/uplink.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hvd::negotiation {
namespace {

Status Twice(const std::string& name) { return Wrong("it marks '" + name + "' twice"); }

}  // namespace

Status Uplink::Receive(int source, ByteReader* r, double now) {
  while (!r->AtEnd() && !at_.abort->over()) {
    const ByteReader before = *r;
    const auto record = static_cast<UpRecord>(r->U8());
    bool ahead = false;
    Status status = record == UpRecord::kDone ? OthersDone(source, r, &ahead) : ReceiveOne(record, source, r, now);
    if (!status.ok() || !r->ok()) return status;
    if (ahead) {
      *r = before;
      return {};
    }
  }
  return {};
}

Status Uplink::ReceiveOne(UpRecord record, int source, ByteReader* r, double now) {
  switch (record) {
    case UpRecord::kVersion:
      return at_.versions->Heard(source, r->Varint()) ? Status() : Wrong("it is ahead of or behind the log");
    case UpRecord::kMarks:
      return Marked(source, r, now);
    case UpRecord::kPayloads:
      return Brought(source, r, now);
    case UpRecord::kTally:
      return Contributed(source, r, now);
    case UpRecord::kJoined: {
      const auto rank = static_cast<int>(r->Varint32(INT32_MAX));
      return r->ok() ? at_.joins->FromChild(source, rank) : Status();
    }
    case UpRecord::kAllJoined:
      return at_.joins->AllFromChild(source, now);
    case UpRecord::kGoodbye: {
      Departures::Leaver leaver;
      leaver.rank = static_cast<int>(r->Varint32(INT32_MAX));
      leaver.exception = r->Text();
      return r->ok() ? at_.departures->FromChild(source, std::move(leaver)) : Status();
    }
    case UpRecord::kAbort: {
      const Status reason = ReadStatus(r);
      if (r->ok()) at_.abort->Raise(reason);
      return {};
    }
    case UpRecord::kStallNotice:
      at_.stall->Notice(r, now);
      return {};
    case UpRecord::kStallReport:
      return StallReport(source, r, now);
    case UpRecord::kTrace:
      return Trace(source, r);
    case UpRecord::kClock:
      return Clock(source, r);
    case UpRecord::kDone:
      break;  // read before
  }
  return Wrong("it holds an unknown record");
}

Status Uplink::Marked(int source, ByteReader* r, double now) {
  const uint32_t n = r->U32();
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t id = r->Varint32();
    if (!r->ok()) return {};
    HVD_TRY(MarkOne(id, source, {}, now));
  }
  return {};
}

Status Uplink::Brought(int source, ByteReader* r, double now) {
  const uint32_t id = r->Varint32();
  std::vector<Payload> payloads = ReadPayloads(r, at_.place->size);
  if (!r->ok()) return {};
  for (const Payload& p : payloads) {
    if (!at_.place->below[source].Contains(p.rank)) return Wrong("it contributes for a rank that is not below it");
  }
  return MarkOne(id, source, std::move(payloads), now);
}

Status Uplink::MarkOne(uint32_t id, int source, std::vector<Payload> payloads, double now) {
  Marks& marks = *at_.marks;
  const Cache& cache = marks.cache();
  if (id >= cache.size()) return Wrong("it marks id " + std::to_string(id) + ", which was never given");
  const CachedRequest& s = cache.at(id);
  if (s.valid_from > at_.versions->sent_at(source)) return {};  // of a set, a group or an operation that has ended
  if (!s.request) return Wrong("it marks id " + std::to_string(id) + ", which means nothing");
  if (!HasSource(s.pair ? marks.NeedOf(id) : at_.sets->at(s.process_set).members, source)) {
    return Wrong("it marks '" + s.request->name + "', in which it has no part");
  }
  if (!payloads.empty() && marks.IsDirect(id) && at_.place->LeaderNumber(at_.place->rank_of(source)) >= 0) {
    return Wrong("it brings to '" + s.request->name + "' what all leaders must get directly");
  }
  return marks.MarkOfChild(id, source, std::move(payloads), now) ? Status() : Twice(s.request->name);
}

// The root has sent the last log that its child has obeyed, so it cannot be behind that.
Status Uplink::OthersDone(int source, ByteReader* r, bool* ahead) {
  const std::vector<DoneDirectly> done = ReadDone(r);
  if (!r->ok()) return {};
  for (const DoneDirectly& d : done) {
    const Turn here = at_.marks->TurnOf(d.id);
    const bool leader = at_.place->LeaderNumber(at_.place->rank_of(source)) >= 0;
    if (!at_.place->root() || !leader || d.next.answers > here.answers) {
      return Wrong("it has done an operation directly, which cannot be");
    }
    *ahead |= d.next > here;
  }
  return {};
}

bool Uplink::IsVoid(const WireTally& tally, int source) const {
  if (!at_.sets->FindUsable(tally.key.set)) return true;  // its sender has not heard yet
  const Cache& cache = at_.marks->cache();
  return std::any_of(tally.parts.begin(), tally.parts.end(), [&](const Part& p) {
    if (p.id < 0) return at_.versions->Dropped(source, tally.key, p.group_hash());
    const auto id = static_cast<uint32_t>(p.id);
    return id < cache.size() && cache.at(id).valid_from > at_.versions->sent_at(source);
  });
}

Status Uplink::Check(const WireTally& tally, int source) const {
  if (!at_.sets->Fits(tally.key)) return Wrong("it names '" + tally.key.name + "', which cannot be");
  const RankSet may = at_.place->below[source].And(at_.sets->MembersOf(tally.key));
  const Cache& cache = at_.marks->cache();
  for (const Part& p : tally.parts) {
    if (!p.ranks.Minus(may).empty()) return Wrong("it speaks for ranks that are not below its sender");
    if (p.id < 0) continue;
    const auto id = static_cast<uint32_t>(p.id);
    const Request* request = id < cache.size() ? cache.at(id).request.get() : nullptr;
    if (!request || !NameEqual()(request->key(), tally.key)) {
      return Wrong("it names id " + std::to_string(p.id) + " for '" + tally.key.name + "', which it is not");
    }
  }
  bool twice = false;
  if (const Tally* t = at_.marks->tallies().Find(tally.key)) {
    twice = t->Has(source) || t->complete;
  } else if (const int32_t id = cache.IdOf(tally.key); id >= 0) {
    const auto cached = static_cast<uint32_t>(id);
    twice = cache.at(cached).state == CachedRequest::kComplete || HasSource(cache.mask(cached), source);
  }
  return twice ? Wrong("it contributes to '" + tally.key.name + "' twice") : Status();
}

Status Uplink::Contributed(int source, ByteReader* r, double now) {
  WireTally tally = ReadTally(r, at_.place->size);
  if (!r->ok()) return {};
  if (tally.key.set >= at_.sets->next_id()) {
    return Wrong("it names process set " + std::to_string(tally.key.set) + ", which was never there");
  }
  if (IsVoid(tally, source)) return {};
  HVD_TRY(Check(tally, source));
  for (Part& p : tally.parts) {
    p.source = source;
    if (p.id >= 0) p.request = at_.marks->cache().at(static_cast<uint32_t>(p.id)).request;
  }
  at_.marks->Add(tally.key, tally.type, std::move(tally.parts), now);
  return {};
}

Status Uplink::StallReport(int source, ByteReader* r, double now) {
  std::vector<Clash> clashes;
  HVD_TRY(at_.stall->Report(source, r, now, &clashes));
  at_.coordinator->FailClashes(clashes, now);
  return {};
}

// Its text is looked at by nobody: the engine passes it on, or rank 0 writes it.
Status Uplink::Trace(int source, ByteReader* r) {
  TracePiece piece = ReadTracePiece(r, at_.place->size);
  if (!r->ok()) return {};
  if (!at_.place->below[source].Contains(piece.rank)) return Wrong("it traces a rank that is not below it");
  at_.results->Add(std::move(piece));
  return {};
}

Status Uplink::Clock(int source, ByteReader* r) {
  const ClockAnswer answer = ReadClockAnswer(r, at_.place->size);
  if (!r->ok()) return {};
  if (!at_.place->below[source].Contains(answer.rank)) return Wrong("it has the clock of a rank that is not below it");
  at_.results->Add(answer);
  return {};
}

}  // namespace hvd::negotiation
