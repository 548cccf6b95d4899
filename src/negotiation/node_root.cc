// The root's decisions, written into the log and obeyed like everybody else does. Decisions are taken one at a time, at
// the end of a public call (Settle), when everything decided before is obeyed: each sees the state that all ranks will
// have at that place of the log.
#include <algorithm>

#include "negotiation/node_impl.h"

namespace hvd {
void Node::Impl::ObeyOwnLog(double now) {
  while (log_applied < out.down_size()) {
    const std::span<const std::byte> records = out.down_records(log_applied);
    log_copy.assign(records.begin(), records.end());
    log_applied = out.down_size();
    ByteReader r(log_copy);
    Status status = ApplyLog(&r, now);
    if (status.ok()) status = r.status("a record");
    if (!status.ok()) DoAbort(status.Because("the root's own log"), false);  // a bug of ours
  }
}

void Node::Impl::Settle(double now) {
  ObeyOwnLog(now);
  while (aborted.ok()) {
    if (!to_decide.empty()) {
      const NameKey key = std::move(to_decide.front());
      to_decide.pop_front();
      Decide(key, now);
    } else if (all_joined && own_joined) {
      FlushAll(now);
      out.Down(LogRecord::kJoined).Varint(static_cast<uint32_t>(coordinator.last_joined));
    } else if (!to_leave.empty()) {
      FlushAll(now);
      const int rank = to_leave.front();
      to_leave.erase(to_leave.begin());
      if (!left.Contains(rank)) out.Down(LogRecord::kLeft).Varint(static_cast<uint32_t>(rank));
    } else {
      return;
    }
    ObeyOwnLog(now);
  }
}

void Node::Impl::LogFail(const NameKey& key, const std::vector<uint64_t>& groups, const Status& status) {
  ByteWriter w = out.Down(LogRecord::kFail);
  w.Varint(static_cast<uint32_t>(key.set));
  w.Text(key.name);
  w.Varint(groups.size());
  for (const uint64_t hash : groups) w.U64(hash);
  WriteStatus(status, &w);
}

void Node::Impl::Decide(const NameKey& key, double now) {
  Tally* t = tallies.Find(key);
  if (!t || !t->complete) return;  // taken back since
  const std::vector<Part> parts = t->Merged();
  std::vector<Variant> variants;
  std::vector<uint64_t> groups;
  for (const Part& p : parts) {
    variants.push_back({p.request, p.refusal, p.ranks});
    // A refused group alone is not dropped: its other members' refusals wait for those who send them singly.
    if (p.request && p.request->group_hash != 0) groups.push_back(p.request->group_hash);
  }
  const Status status =
      Validate({t->type, key.name, key.set, variants, sets.at(key.set).ranks.Minus(t->Contributors())});
  if (!status.ok()) {
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    LogFail(key, groups, status);
    return;
  }
  if (IsControl(variants.front().request->type)) {
    DecideSetChange(*variants.front().request, key, now);
    return;
  }
  const int32_t id = parts.front().id;
  coordinator.Agreed(parts.front().request, id, now);
}

void Node::Impl::DecideSetChange(const Request& q, const NameKey& key, double now) {
  auto invalid = [&](const std::string& what) {
    LogFail(key, {}, {Code::kInvalidArgument, std::string(OpText(q.type)) + ": " + what});
  };
  if (q.type == kRemoveSetType) {
    if (q.root == 0) return invalid("process set 0 holds all ranks and cannot be removed.");
    if (!sets.Find(q.root)) return invalid("process set " + std::to_string(q.root) + " does not exist.");
    FlushAll(now);
    ByteWriter w = out.Down(LogRecord::kSetRemoved);
    w.Text(key.name);
    w.Varint(static_cast<uint32_t>(q.root));
    return;
  }
  if (q.shape.empty()) return invalid("a process set needs at least one rank.");
  std::vector<int> ranks;
  for (int64_t r : q.shape) {
    if (r < 0 || r >= place.size) {
      return invalid(std::to_string(r) + " is not a rank; ranks are 0 to " + std::to_string(place.size - 1) +
                     ". Received: " + ShapeText(q.shape) + ".");
    }
    ranks.push_back(static_cast<int>(r));
  }
  RankSet set = RankSet::FromUnsorted(ranks);
  if (set.count() != static_cast<int>(ranks.size())) {
    return invalid("a rank is named twice. Received: " + ShapeText(q.shape) + ".");
  }
  if (const int id = sets.IdOf(set); id >= 0) {
    return invalid("process set " + std::to_string(id) + " has these ranks already: " + ShapeText(q.shape) + ".");
  }
  ByteWriter w = out.Down(LogRecord::kSetAdded);
  w.Text(key.name);
  w.Varint(static_cast<uint32_t>(sets.FreeId()));
  WriteRanks(set, &w);
}

int32_t Node::Impl::AssignId(const Ready& ready, double now) {
  const Request& q = *ready.request;
  int32_t id = cache.IdOf({q.process_set, q.name});
  bool evicts = false;
  if (id >= 0) {
    if (SameSignature(*cache.at(static_cast<uint32_t>(id)).request, q)) return id;
  } else {
    if (q.transient || cache.capacity() <= 0) return -1;
    id = cache.PickId(&evicts);
    if (id < 0) return -1;
  }
  if (evicts && !warned_full) {
    warned_full = true;
    Action a;
    a.level = 3;
    a.name = "The negotiation cache is full (" + std::to_string(cache.capacity()) +
             " names): names that were not used for long are negotiated anew. HOROVOD_CACHE_CAPACITY sets its size.";
    actions.push_back(std::move(a));
  }
  ByteWriter w = out.Down(LogRecord::kDefine);
  w.Varint(static_cast<uint32_t>(id));
  WriteRequest(q, &w);
  ObeyOwnLog(now);
  return id;
}

void Node::Impl::FlushAll(double now) {
  if (!coordinator.any_ready()) return;
  const FusionRules rules{config.fusion_threshold_bytes, config.disable_group_fusion, config.deterministic};
  for (const std::vector<Ready>& batch : coordinator.Take(rules)) {
    std::vector<int32_t> ids;
    ids.reserve(batch.size());
    for (const Ready& r : batch) ids.push_back(r.id >= 0 ? r.id : AssignId(r, now));
    ByteWriter w = out.Down(LogRecord::kBatch);
    WriteRanks(batch.front().request->process_set == 0 ? coordinator.joined : RankSet(), &w);
    w.Varint(batch.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      w.Varint(static_cast<uint64_t>(ids[i]) + 1);
      if (ids[i] < 0) WriteRequest(*batch[i].request, &w);
    }
    ObeyOwnLog(now);
  }
}

bool Node::Impl::HoldForLinger(double now, bool someone_waits) const {
  if (config.linger_s <= 0 || someone_waits) return false;
  return coordinator.ready_bytes() < config.fusion_threshold_bytes &&
         now < coordinator.oldest_ready() + config.linger_s;
}

bool Node::wants_flush() const { return impl_->is_root() && impl_->aborted.ok() && impl_->coordinator.any_ready(); }

void Node::Flush(double now, int batches_in_flight, bool someone_waits) {
  Impl& m = *impl_;
  m.held_by_linger = false;
  if (!wants_flush() || batches_in_flight >= m.config.max_batches_in_flight) return;
  if (m.HoldForLinger(now, someone_waits)) {
    m.held_by_linger = true;
    return;
  }
  m.FlushAll(now);
  m.Finish(now);
}

}  // namespace hvd
