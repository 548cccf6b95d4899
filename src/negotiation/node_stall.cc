// The stall inspector's part of the protocol. An inner node tells the root about old incomplete tallies; the root asks
// everybody down the tree who is missing, and reports with the answers it has after a short while (a stopped process
// gives none).
#include <algorithm>

#include "negotiation/node_impl.h"

namespace hvd {
namespace {

enum StateFlags : uint8_t { kPresent = 1, kOwnMissing = 2 };

}  // namespace

std::vector<StalledTally> Node::Impl::Incomplete() {
  std::vector<StalledTally> list;
  for (uint32_t id = 0; id < cache.size(); ++id) {
    const Slot& s = cache.at(id);
    if (s.state == Slot::kPartial) list.push_back({s.process_set, s.request->type, s.request->name, s.since});
  }
  for (const auto& [key, t] : tallies.all()) {
    if (!t.complete) list.push_back({key.set, t.type, key.name, t.since});
  }
  return list;
}

StallState Node::Impl::StateOf(int process_set, const std::string& name) {
  StallState state;
  const ProcessSet* set = sets.Find(process_set);
  if (!set || !set->dead.ok()) return state;
  const NameView key{process_set, name};
  std::vector<uint64_t> mask(words, 0);
  if (const Tally* t = tallies.Find(key)) {
    mask = t->mask;
  } else if (const int32_t id = cache.IdOf(key); id >= 0) {
    const uint64_t* m = cache.mask(static_cast<uint32_t>(id));
    mask.assign(m, m + words);
  }
  for (int source = 0; source < place.sources(); ++source) {
    const uint64_t bit = uint64_t{1} << (source % 64);
    if (mask[source / 64] & bit) {
      state.present = true;
    } else if (set->need[source / 64] & bit) {
      if (source == 0) {
        state.own_missing = true;
      } else {
        state.missing.push_back(place.rank_of(source));
      }
    }
  }
  return state;
}

void Node::Impl::StallTick(double now) {
  if (!stall.rules().enabled || !aborted.ok()) return;
  if (stall.querying() && now >= stall.answer_deadline()) FinishQuery(now);
  if (!aborted.ok() || now < stall.scan_at() || stall.querying()) return;
  std::vector<StalledTally> old = stall.Old(Incomplete(), now);
  if (!is_root()) {
    for (const StalledTally& t : old) SendNotice(t, now);
    return WatchParent(now);
  }
  if (!stall.BeginQuery(std::move(old), now)) return;
  ByteWriter w = out.Down(LogRecord::kStallQuery);
  w.Varint(stall.number());
  w.Varint(stall.asked().size());
  for (const StalledTally& t : stall.asked()) {
    w.Varint(static_cast<uint32_t>(t.process_set));
    w.Text(t.name);
  }
}

void Node::Impl::SendNotice(const StalledTally& tally, double now) {
  ByteWriter w = out.Up(UpRecord::kStallNotice, version);
  w.Varint(static_cast<uint32_t>(tally.process_set));
  w.U8(static_cast<uint8_t>(tally.type));
  w.Text(tally.name);
  w.F64(now - tally.since);
}

// The oldest own wish that the log has not answered; null: none.
const StalledTally* Node::Impl::OldestOwn(StalledTally* memory) {
  const StalledTally* oldest = nullptr;
  const auto consider = [&](int set, OpType type, const std::string& name, double since) {
    if (oldest != nullptr && oldest->since <= since) return;
    *memory = {set, type, name, since};
    oldest = memory;
  };
  for (uint32_t id = 0; id < cache.size(); ++id) {
    const Slot& s = cache.at(id);
    if (s.request && s.own_ticket != 0) consider(s.process_set, s.request->type, s.request->name, s.since);
  }
  for (const auto& [key, t] : tallies.all()) {
    if (t.own_ticket != 0) consider(key.set, t.type, key.name, t.since);
  }
  return oldest;
}

// The root watches everybody below it; a stopped root, or a stopped rank on the way to it, can only be seen from below.
// A rank whose own wish waits while nothing comes from above sends a notice, which a living root answers with a query.
void Node::Impl::WatchParent(double now) {
  StalledTally memory;
  const StalledTally* own = OldestOwn(&memory);
  if (own == nullptr || left.Contains(place.parent)) return;
  const double quiet_since = std::max({heard_at, told_at, own->since});
  const double ask_at = quiet_since + stall.rules().warning_s;
  if (now < ask_at) return stall.ScanBy(ask_at);
  if (asked_at < 0) {
    asked_at = now;
    SendNotice(*own, now);
  }
  if (now < asked_at + 2 * stall.patience_s()) return stall.ScanBy(asked_at + 2 * stall.patience_s());
  told_at = now;
  const bool below_root = place.parent == 0;
  const std::string parent = "rank " + std::to_string(place.parent);
  const std::string text = Subject(own->type, own->name, own->process_set) + " waits for " +
                           std::to_string(static_cast<int64_t>(now - own->since)) + " s: " + parent +
                           (below_root ? "" : ", or a rank between it and rank 0,") + " gives no answer (stopped?)";
  const double shutdown_s = stall.rules().shutdown_s;
  const bool over = shutdown_s > 0 && now - own->since >= shutdown_s;
  Action a;
  a.level = over ? 4 : 3;
  a.name = text + ".";
  actions.push_back(std::move(a));
  if (over) return DoAbort({Code::kTimeout, text + "; HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is over."}, false);
  stall.ScanBy(now + stall.rules().warning_s);
}

void Node::Impl::FinishQuery(double now) {
  // The root's own state is taken now: what completed meanwhile waits for nobody.
  std::vector<StallState> own;
  for (const StalledTally& t : stall.asked()) own.push_back(StateOf(t.process_set, t.name));
  stall.Answer(stall.number(), place.rank, std::move(own));
  StallInspector::Report report = stall.EndQuery(now, config.host_of_rank);
  if (!report.text.empty()) {
    Action a;
    a.level = report.shutdown.empty() ? 3 : 4;
    a.name = std::move(report.text);
    actions.push_back(std::move(a));
  }
  if (!report.shutdown.empty()) DoAbort({Code::kTimeout, report.shutdown}, false);
}

Status Node::Impl::ApplyStallQuery(ByteReader* r) {
  const uint64_t number = r->Varint();
  const size_t n = r->Count(2);
  std::vector<StallState> states;
  for (size_t i = 0; i < n && r->ok(); ++i) {
    const auto set = static_cast<int32_t>(r->Varint32(INT32_MAX));
    states.push_back(StateOf(set, std::string(r->Text())));
  }
  if (!r->ok() || n == 0) return {};
  if (is_root()) {
    stall.Answer(number, place.rank, std::move(states));
    return {};
  }
  ByteWriter w = out.Up(UpRecord::kStallReport, version);
  w.Varint(number);
  w.Varint(static_cast<uint32_t>(place.rank));
  w.Varint(states.size());
  for (const StallState& s : states) {
    w.U8(static_cast<uint8_t>((s.present ? kPresent : 0) | (s.own_missing ? kOwnMissing : 0)));
    w.Varint(s.missing.size());
    for (int child : s.missing) w.Varint(static_cast<uint32_t>(child));
  }
  return {};
}

Status Node::Impl::UpStallNotice(ByteReader* r, double now) {
  StalledTally t;
  t.process_set = static_cast<int>(r->Varint32(INT32_MAX));
  const uint8_t type = r->U8();
  if (!IsValidType(type)) r->Fail();
  t.type = static_cast<OpType>(type);
  t.name = r->Text();
  const double age = r->F64();
  if (!(age >= 0)) r->Fail();
  if (!r->ok()) return {};
  if (is_root()) {
    t.since = now - age;
    if (!stall.Notice(std::move(t), now) && !stall.querying()) {
      ByteWriter w = out.Down(LogRecord::kStallQuery);  // about nothing: a sign of life is all that is wanted
      w.Varint(0);
      w.Varint(0);
    }
    return {};
  }
  t.since = now - age;
  SendNotice(t, now);
  return {};
}

Status Node::Impl::UpStallReport(int source, ByteReader* r, double now) {
  const uint64_t number = r->Varint();
  const auto rank = static_cast<int>(r->Varint32(INT32_MAX));
  std::vector<StallState> states;
  const size_t n = r->Count(2);
  for (size_t i = 0; i < n && r->ok(); ++i) {
    const uint8_t flags = r->U8();
    StallState s;
    s.present = (flags & kPresent) != 0;
    s.own_missing = (flags & kOwnMissing) != 0;
    const size_t children = r->Count();
    for (size_t k = 0; k < children; ++k) s.missing.push_back(static_cast<int>(r->Varint32(place.size - 1)));
    states.push_back(std::move(s));
  }
  if (!r->ok()) return {};
  if (!place.below[source].Contains(rank)) {
    return {Code::kInternal, "it answers for rank " + std::to_string(rank) + ", which is not below"};
  }
  if (is_root()) {
    stall.Answer(number, rank, std::move(states));
    if (stall.querying() && number == stall.number() && stall.AllAnswered()) FinishQuery(now);
    return {};
  }
  ByteWriter w = out.Up(UpRecord::kStallReport, version);
  w.Varint(number);
  w.Varint(static_cast<uint32_t>(rank));
  w.Varint(states.size());
  for (const StallState& s : states) {
    w.U8(static_cast<uint8_t>((s.present ? kPresent : 0) | (s.own_missing ? kOwnMissing : 0)));
    w.Varint(s.missing.size());
    for (int child : s.missing) w.Varint(static_cast<uint32_t>(child));
  }
  return {};
}

double Node::next_deadline() const {
  const Impl& m = *impl_;
  double at = StallInspector::kNever;
  if (!m.aborted.ok()) return at;
  if (m.held_by_linger && wants_flush()) at = m.coordinator.oldest_ready() + m.config.linger_s;
  for (const Impl::Lost& l : m.lost) {
    if (!m.cut && !m.own_left && !m.left.Contains(l.rank)) at = std::min(at, l.abort_at);
  }
  if (m.stall.querying()) return std::min(at, m.stall.answer_deadline());
  if (m.incomplete > 0 || m.stall.has_notices() || (m.own_waiting > 0 && !m.is_root()))
    at = std::min(at, m.stall.scan_at());
  return at;
}

void Node::Tick(double now) {
  impl_->JudgeLost(now);
  impl_->StallTick(now);
  impl_->Finish(now);
}

}  // namespace hvd
