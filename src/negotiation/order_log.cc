#include "negotiation/order_log.h"

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "negotiation/values/pair.h"

namespace hvd::negotiation {
namespace {

// What a process set's operations fail with after a rank has left.
std::string WhyOver(const Departures::Leaver& leaver, int set, bool member) {
  const std::string who = "rank " + std::to_string(leaver.rank);
  if (!leaver.exception.empty()) {
    const std::string ended = who + " ended with " + leaver.exception;
    return member ? ended : ended + "; other ranks were connected through it";
  }
  if (!member) return who + " has shut down, and other ranks were connected through it";
  return who + " has shut down, and process set " + std::to_string(set) +
         " needs it; give all ranks the same number of steps, or call join() on those that have fewer";
}

}  // namespace

void OrderLog::ObeyOwn(double now) {
  for (;;) {
    const std::span<const std::byte> records = at_.out->TakeUnread();
    if (records.empty()) return;
    obeying_.assign(records.begin(), records.end());
    ByteReader r(obeying_);
    Status status = Obey(&r, now);
    if (status.ok()) status = r.status("a record");
    if (!status.ok()) at_.abort->Raise(status.Because("the root's own log"));  // a bug of ours
  }
}

Status OrderLog::Obey(ByteReader* r, double now) {
  while (!r->AtEnd() && !at_.abort->over()) {
    const ByteReader before = *r;
    const auto record = static_cast<LogRecord>(r->U8());
    bool ahead = false;
    Status status = record == LogRecord::kDone ? RootDone(r, &ahead) : ObeyOne(record, r, now);
    if (!status.ok() || !r->ok()) return status;
    if (ahead) {
      *r = before;
      return {};
    }
  }
  return {};
}

Status OrderLog::ObeyOne(LogRecord record, ByteReader* r, double now) {
  switch (record) {
    case LogRecord::kDefine:
      return Define(r);
    case LogRecord::kBatch:
      return Batch(r);
    case LogRecord::kExchanged:
      return Exchange(r);
    case LogRecord::kFail:
      return Fail(r, now);
    case LogRecord::kSetAdded:
      return SetWasAdded(r);
    case LogRecord::kSetRemoved:
      return SetWasRemoved(r);
    case LogRecord::kJoined:
      return JoinEnded(r);
    case LogRecord::kParameters:
      return Change(r);
    case LogRecord::kLeft:
      return Left(r);
    case LogRecord::kTrace: {
      const TraceOrder order = ReadTraceOrder(r);
      if (r->ok()) at_.results->Add(order);
      return {};
    }
    case LogRecord::kClock: {
      ClockQuestion question = ReadClockQuestion(r, at_.place->size);
      if (r->ok()) at_.results->Add(std::move(question));
      return {};
    }
    case LogRecord::kStallQuery:
      at_.stall->AnswerQuery(r);
      return {};
    case LogRecord::kAbort: {
      const Status reason = ReadStatus(r);
      if (r->ok()) at_.abort->Obey(reason);
      return {};
    }
    case LogRecord::kDone:
      break;  // read before
  }
  return Wrong("it holds an unknown log record");
}

// The log up to here is obeyed, so this rank can only be behind in what is done without it.
Status OrderLog::RootDone(ByteReader* r, bool* ahead) const {
  const std::vector<DoneDirectly> done = ReadDone(r);
  if (!r->ok()) return {};
  for (const DoneDirectly& d : done) {
    const Turn here = at_.marks->TurnOf(d.id);
    if (!at_.place->direct() || d.next.answers > here.answers) {
      return Wrong("it has done an operation directly, which cannot be");
    }
    *ahead |= d.next > here;
  }
  return {};
}

Status OrderLog::Define(ByteReader* r) {
  const uint32_t id = r->Varint32();
  auto request = std::make_shared<Request>(ReadRequest(r));
  if (!r->ok()) return {};
  const Cache& cache = at_.marks->cache();
  if (id > cache.size() || IsControl(request->type)) return Wrong("it defines an id out of turn");
  if (!at_.sets->FindUsable(request->process_set)) {
    return Wrong("it defines an id for a process set that is not there");
  }
  if (!at_.sets->Fits(request->key())) return Wrong("it defines an id for a send that cannot be");
  if (const int32_t before = cache.IdOf(request->key()); before >= 0 && before != static_cast<int32_t>(id)) {
    return Wrong("it defines a second id for '" + request->name + "'");
  }
  if (id < cache.size() && cache.at(id).request) {
    const CachedRequest& s = cache.at(id);
    if (!NameEqual()(s.request->key(), request->key())) return Wrong("it gives the id of one name to another");
    if (s.state != CachedRequest::kIdle) return Wrong("it changes an id that is in use");
  }
  at_.marks->Define(id, std::move(request));
  return {};
}

// One entry of a batch: what was agreed, and this rank's ticket. Its marks are used up.
Status OrderLog::TakeEntry(ByteReader* r, Entry* entry) {
  const uint64_t code = r->Varint();
  if (code == 0) {
    entry->request = std::make_shared<Request>(ReadRequest(r));
    if (!r->ok()) return {};
    entry->ticket = at_.marks->UseTally(entry->request->key());
  } else {
    HVD_TRY(TakeCached(code - 1, entry));
  }
  at_.stall->Settled(entry->request->key());
  return {};
}

Status OrderLog::TakeCached(uint64_t id, Entry* entry) {
  const Cache& cache = at_.marks->cache();
  if (id >= cache.size() || !cache.at(static_cast<uint32_t>(id)).request) {
    return Wrong("it runs id " + std::to_string(id) + ", which means nothing");
  }
  entry->request = cache.at(static_cast<uint32_t>(id)).request;
  entry->ticket = at_.marks->UseCached(static_cast<uint32_t>(id));
  return {};
}

// What all members have brought; their marks are used up.
Status OrderLog::Exchange(ByteReader* r) {
  Exchanged exchanged;
  const uint64_t id = r->Varint();
  exchanged.payloads = ReadPayloads(r, at_.place->size);
  if (!r->ok()) return {};
  HVD_TRY(TakeCached(id, &exchanged.entry));
  const Request& request = *exchanged.entry.request;
  at_.stall->Settled(request.key());
  const ProcessSet* set = at_.sets->FindUsable(request.process_set);
  if (!set) return Wrong("it ends an operation of a process set that is not there");
  RankSet from;
  for (const Payload& p : exchanged.payloads) from.Add(p.rank);
  if (from != set->ranks) return Wrong("it ends '" + request.name + "' without the contribution of every member");
  if (!set->own) return {};
  if (exchanged.entry.ticket == 0) return Wrong("it ends '" + request.name + "', which this rank has not submitted");
  at_.results->Add(std::move(exchanged));
  return {};
}

Status OrderLog::Batch(ByteReader* r) {
  RankSet joined = ReadRanks(r, at_.place->size);
  const size_t n = r->Count();
  if (n == 0) r->Fail();
  ExecuteBatch batch;
  batch.seq = ++seq_;
  batch.entries.resize(n);
  const ProcessSet* set = nullptr;
  bool own = false;  // this rank takes part
  for (Entry& e : batch.entries) {
    HVD_TRY(TakeEntry(r, &e));
    if (!r->ok()) return {};
    if (!set) {
      batch.process_set = e.request->process_set;
      set = at_.sets->FindUsable(batch.process_set);
      if (!set) return Wrong("it runs a batch of a process set that is not there");
    }
    const std::optional<Pair> pair = PairOf(e.request->name);
    if (pair && n > 1) return Wrong("it mixes a send with others");
    own = pair ? pair->ranks().Contains(at_.place->rank) && set->own : set->own;
    if (e.request->process_set != batch.process_set || IsControl(e.request->type)) {
      return Wrong("it mixes operations that cannot run together");
    }
    if (own && e.ticket == 0 && (pair || !at_.joins->own() || batch.process_set != 0)) {
      return Wrong("it runs '" + e.request->name + "', which this rank has not submitted");
    }
  }
  if (!own) return {};
  batch.joined = joined.ToVector();
  at_.results->Add(std::move(batch));
  return {};
}

Status OrderLog::Fail(ByteReader* r, double now) {
  const NameKey key{static_cast<int32_t>(r->Varint32(INT32_MAX)), std::string(r->Text())};
  std::vector<uint64_t> groups(r->Count(8));
  for (uint64_t& hash : groups) hash = r->U64();
  const bool unfinished = r->U8() != 0;
  const Status why = ReadStatus(r);
  if (!r->ok()) return {};
  at_.own_requests->SetChangeOver(key.name);
  at_.stall->Settled(key);
  uint64_t void_before = 0;
  if (unfinished) {
    void_before = at_.versions->Next();
    at_.versions->DropName(key);
  }
  if (const Request own = at_.marks->Fail(key, void_before); own.ticket != 0) at_.results->Fail(own, why);
  if (!groups.empty()) {
    const uint64_t version = at_.versions->Next();
    for (const uint64_t hash : groups) {
      at_.versions->DropGroup(key.set, hash);
      at_.ready->DropGroup(key.set, hash);
    }
    for (const Request& own : at_.marks->DropGroups(key.set, groups, version)) at_.results->Fail(own, why);
  }
  at_.own_requests->Retry(now);  // only now: what waited for this failure belongs to the next group of that name
  return {};
}

Status OrderLog::SetWasAdded(ByteReader* r) {
  const NameKey key{0, std::string(r->Text())};
  const auto id = static_cast<int>(r->Varint32(INT32_MAX));
  RankSet ranks = ReadRanks(r, at_.place->size);
  if (!r->ok()) return {};
  if (id != at_.sets->next_id() || ranks.empty()) return Wrong("it adds a process set that cannot be");
  at_.own_requests->SetChangeOver(key.name);
  at_.results->Add(SetAdded{at_.marks->UseTally(key), id, ranks.ToVector()});
  at_.sets->Add(std::move(ranks));
  return {};
}

Status OrderLog::SetWasRemoved(ByteReader* r) {
  const NameKey key{0, std::string(r->Text())};
  const auto id = static_cast<int>(r->Varint32(INT32_MAX));
  if (!r->ok()) return {};
  if (id == 0 || !at_.sets->Find(id)) return Wrong("it removes a process set that is not there");
  at_.own_requests->SetChangeOver(key.name);
  const uint64_t ticket = at_.marks->UseTally(key);
  at_.versions->Next();
  EndSet(id, {Code::kInvalidArgument, "process set " + std::to_string(id) + " was removed while it was waiting"});
  at_.sets->Remove(id);
  at_.results->Add(SetRemoved{ticket, id});
  return {};
}

// Every operation of the set, own or passing through, is over.
void OrderLog::EndSet(int id, const Status& why) {
  for (const Request& own : at_.marks->DropSet(id, at_.versions->now())) at_.results->FailBecause(own, why);
  at_.own_requests->DropSet(id, why);
  at_.ready->DropSet(id);
}

Status OrderLog::JoinEnded(ByteReader* r) {
  const auto last = static_cast<int>(r->Varint32(INT32_MAX));
  if (!r->ok()) return {};
  if (!at_.joins->own() || last >= at_.place->size) return Wrong("it ends a join that this rank is not part of");
  at_.versions->Next();
  at_.results->Add(AllJoined{at_.joins->End(), last});
  return {};
}

Status OrderLog::Change(ByteReader* r) {
  const Parameters parameters = ReadParameters(r);
  if (r->ok()) at_.results->Add(ParametersChanged{parameters});
  return {};
}

Status OrderLog::Left(ByteReader* r) {
  Departures::Leaver leaver;
  leaver.rank = static_cast<int>(r->Varint32(INT32_MAX));
  leaver.exception = r->Text();
  if (!r->ok()) return {};
  if (leaver.rank >= at_.place->size || at_.departures->Left(leaver.rank)) {
    return Wrong("it says that rank " + std::to_string(leaver.rank) + " left, which cannot be");
  }
  at_.versions->Next();
  for (const int id : at_.sets->Ids()) {
    ProcessSet& set = at_.sets->at(id);
    const bool member = set.ranks.Contains(leaver.rank);
    if (!set.dead.ok() || !(member || at_.departures->EndsLog(leaver.rank))) continue;
    set.dead = Status(Code::kShutdown, WhyOver(leaver, id, member));
    EndSet(id, set.dead);
  }
  at_.departures->Obey(leaver);
  return {};
}

}  // namespace hvd::negotiation
