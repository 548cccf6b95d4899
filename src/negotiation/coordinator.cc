#include "negotiation/coordinator.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "negotiation/state/set_change.h"
#include "negotiation/values/signature.h"

namespace hvd::negotiation {

void Coordinator::Settle(double now) {
  at_.log->ObeyOwn(now);
  while (!at_.abort->over()) {
    Departures::Leaver leaver;
    LogExchanges();
    at_.log->ObeyOwn(now);
    if (const Tally* tally = at_.marks->NextToDecide()) {
      Decide(*tally, now);
    } else if (at_.joins->complete()) {
      FlushAll(now);
      at_.out->Down(LogRecord::kJoined).Varint(static_cast<uint32_t>(at_.joins->last_rank()));
    } else if (at_.departures->NextLeaver(&leaver)) {
      FlushAll(now);
      ByteWriter w = at_.out->Down(LogRecord::kLeft);
      w.Varint(static_cast<uint32_t>(leaver.rank));
      w.Text(leaver.exception);
    } else {
      return;
    }
    at_.log->ObeyOwn(now);
  }
}

// Each by itself, and at once: it costs no batch, so nothing is gained by waiting.
void Coordinator::LogExchanges() {
  for (const ReadyQueue::WithPayloads& brought : at_.ready->TakeBrought()) {
    ByteWriter w = at_.out->Down(LogRecord::kExchanged);
    w.Varint(brought.id);
    WritePayloads(brought.payloads, &w);
  }
}

void Coordinator::LogFail(const NameKey& key, const std::vector<uint64_t>& groups, const Status& why, bool unfinished) {
  ByteWriter w = at_.out->Down(LogRecord::kFail);
  w.Varint(static_cast<uint32_t>(key.set));
  w.Text(key.name);
  w.Varint(groups.size());
  for (const uint64_t hash : groups) w.U64(hash);
  w.U8(unfinished ? 1 : 0);
  WriteStatus(why, &w);
}

void Coordinator::Decide(const Tally& tally, double now) {
  const std::vector<Part> parts = tally.Merged();
  std::vector<Variant> variants;
  std::vector<uint64_t> groups;
  for (const Part& p : parts) {
    variants.push_back({p.request, p.refusal, p.ranks});
    // A refused group alone is not dropped: its other members' refusals wait for the ranks that send them singly.
    if (p.request && p.request->group_hash != 0) groups.push_back(p.request->group_hash);
  }
  const NameKey& key = tally.key;
  const RankSet absent = at_.sets->MembersOf(key).Minus(tally.Contributors());
  if (const Status status = Validate({tally.type, key.name, key.set, variants, absent}); !status.ok()) {
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    return LogFail(key, groups, status);
  }
  const Part& agreed = parts.front();
  if (IsControl(agreed.request->type)) return DecideSetChange(*agreed.request, key, now);
  at_.ready->Agreed(agreed.request, agreed.id, now);
}

void Coordinator::DecideSetChange(const Request& q, const NameKey& key, double now) {
  const bool adds = q.type == kAddSetType;
  RankSet ranks;
  const Status status = adds ? CheckAddSet(q, *at_.sets, at_.place->size, &ranks) : CheckRemoveSet(q, *at_.sets);
  if (!status.ok()) return LogFail(key, {}, status);
  if (!adds) FlushAll(now);
  ByteWriter w = at_.out->Down(adds ? LogRecord::kSetAdded : LogRecord::kSetRemoved);
  w.Text(key.name);
  w.Varint(static_cast<uint32_t>(adds ? at_.sets->next_id() : q.root));
  if (adds) WriteRanks(ranks, &w);
}

void Coordinator::FailClashes(const std::vector<Clash>& clashes, double now) {
  if (clashes.empty()) return;
  for (const Clash& clash : clashes) {
    for (const StalledTally& t : clash.tallies) {
      std::vector<uint64_t> groups;
      if (t.group_hash != 0) groups.push_back(t.group_hash);
      LogFail(t.key, groups, clash.why, /*unfinished=*/true);
    }
  }
  // At once: the rest of the frame that brought the last answer must not complete what has just failed.
  at_.log->ObeyOwn(now);
}

void Coordinator::Change(const Parameters& parameters, double now) {
  if (!at_.place->root() || at_.abort->over()) return;
  ByteWriter w = at_.out->Down(LogRecord::kParameters);
  WriteParameters(parameters, &w);
  at_.log->ObeyOwn(now);
  pace_.fusion.threshold_bytes = parameters.fusion_threshold_bytes;
  pace_.linger_s = parameters.cycle_time_ms / 1e3;
}

void Coordinator::Order(const TraceOrder& order, double now) {
  if (!at_.place->root() || at_.abort->over()) return;
  ByteWriter w = at_.out->Down(LogRecord::kTrace);
  Write(order, &w);
  at_.log->ObeyOwn(now);
}

void Coordinator::Ask(const ClockQuestion& question, double now) {
  if (!at_.place->root() || at_.abort->over()) return;
  ByteWriter w = at_.out->Down(LogRecord::kClock);
  Write(question, &w);
  at_.log->ObeyOwn(now);
}

// ---- batches

int32_t Coordinator::AssignId(const Request& q, double now) {
  const Cache& cache = at_.marks->cache();
  int32_t id = cache.IdOf(q.key());
  if (id >= 0) {
    if (SameSignature(*cache.at(static_cast<uint32_t>(id)).request, q)) return id;
  } else {
    if (q.transient || cache.capacity() == 0) return -1;
    id = cache.NewId(q);
    if (id < 0) {
      WarnFull();
      return -1;
    }
  }
  ByteWriter w = at_.out->Down(LogRecord::kDefine);
  w.Varint(static_cast<uint32_t>(id));
  WriteRequest(q, &w);
  at_.log->ObeyOwn(now);
  return id;
}

void Coordinator::WarnFull() {
  if (std::exchange(warned_full_, true)) return;
  const Cache& cache = at_.marks->cache();
  const bool by_names = cache.capacity() >= 0 && cache.names() >= static_cast<size_t>(cache.capacity());
  at_.results->Warn(
      "The negotiation caches " + std::to_string(cache.names()) +
      " tensor names, and no more: " + (by_names ? "that is HOROVOD_CACHE_CAPACITY." : "they fill 64 MB.") +
      " Operations under other names take a little longer." +
      (by_names ? " Leave it unset for as many as fit into 64 MB." : " Names that are used again are better."));
}

void Coordinator::FlushAll(double now) {
  if (!at_.ready->any()) return;
  for (const std::vector<Ready>& batch : at_.ready->Take(pace_.fusion)) {
    std::vector<int32_t> ids;
    ids.reserve(batch.size());
    for (const Ready& r : batch) ids.push_back(r.id >= 0 ? r.id : AssignId(*r.request, now));
    ByteWriter w = at_.out->Down(LogRecord::kBatch);
    WriteRanks(batch.front().request->process_set == 0 ? at_.joins->ranks() : RankSet(), &w);
    w.Varint(batch.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      w.Varint(static_cast<uint64_t>(ids[i]) + 1);
      if (ids[i] < 0) WriteRequest(*batch[i].request, &w);
    }
    at_.log->ObeyOwn(now);
  }
}

bool Coordinator::HeldByLinger(double now, bool someone_waits) const {
  if (pace_.linger_s <= 0 || someone_waits) return false;
  return at_.ready->bytes() < pace_.fusion.threshold_bytes && now < at_.ready->oldest() + pace_.linger_s;
}

void Coordinator::Flush(double now, int batches_in_flight, bool someone_waits) {
  lingers_ = false;
  if (!wants_flush() || batches_in_flight >= pace_.max_batches_in_flight) return;
  lingers_ = HeldByLinger(now, someone_waits);
  if (!lingers_) FlushAll(now);
}

double Coordinator::linger_deadline() const {
  if (!lingers_ || !wants_flush()) return std::numeric_limits<double>::infinity();
  return at_.ready->oldest() + pace_.linger_s;
}

}  // namespace hvd::negotiation
