// The public calls of a Node: frames in and out, joining, leaving, losses.
#include "negotiation/node.h"

#include <algorithm>

#include "negotiation/node_impl.h"

namespace hvd {
namespace {

constexpr int kLogWarning = 3;

StallRules RulesOf(const NodeConfig& c) {
  const bool shutdown = c.stall_shutdown_s > 0 && c.stall_shutdown_s >= c.stall_warning_s;
  return {c.stall_check && c.stall_warning_s > 0, c.stall_warning_s, shutdown ? c.stall_shutdown_s : 0};
}

std::string NumberText(double v) {
  std::string s = std::to_string(v);
  s.erase(s.find_last_not_of('0') + 1);
  if (!s.empty() && s.back() == '.') s.pop_back();
  return s;
}

}  // namespace

Node::Impl::Impl(NodeConfig c)
    : config(std::move(c)),
      place(FindPlace(config.rank, config.size, config.parent)),
      words((place.sources() + 63) / 64),
      sets(&place, words),
      cache(config.cache_capacity, words),
      out(static_cast<uint32_t>(config.rank), config.epoch),
      stall(RulesOf(config)),
      link_version(place.sources(), 0),
      frames_received(place.sources(), 0) {
  config.parent = {};
  if (!is_root()) config.host_of_rank = {};  // only the root writes reports
  if (is_root() && config.stall_check && config.stall_shutdown_s > 0 &&
      config.stall_shutdown_s < config.stall_warning_s) {
    Action a;
    a.level = kLogWarning;
    a.name = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (" + NumberText(config.stall_shutdown_s) +
             ") is below HOROVOD_STALL_CHECK_TIME_SECONDS (" + NumberText(config.stall_warning_s) + ") and is ignored.";
    actions.push_back(std::move(a));
  }
}

void Node::Impl::DoAbort(const Status& status, bool from_log) {
  if (!aborted.ok()) return;
  aborted = status;
  deferred.clear();
  Action a;
  a.kind = Action::Kind::kAbort;
  a.status = status;
  actions.push_back(std::move(a));
  if (!from_log) {
    if (!is_root()) {
      ByteWriter w = out.Up(UpRecord::kAbort, version);
      WriteStatus(status, &w);
    }
    ByteWriter w = out.Down(LogRecord::kAbort);
    WriteStatus(status, &w);
  }
}

void Node::Impl::JudgeLost(double now) {
  if (cut || own_left || !aborted.ok()) lost.clear();
  std::erase_if(lost, [&](const Lost& l) { return left.Contains(l.rank); });
  for (const Lost& l : lost) {
    if (l.abort_at > now) continue;
    DoAbort({Code::kPeerLost, "rank " + std::to_string(l.rank) + " was lost: " + l.reason}, false);
    return;
  }
}

void Node::Impl::Finish(double now) {
  if (is_root()) {
    Settle(now);
  } else {
    out.ReportVersion(version);
  }
  if (place.children.empty()) {
    out.ClearDown();
    log_applied = 0;
  }
}

// ----------------------------------------------------------------------------------------------------------------------
// Node

Node::Node(NodeConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}
Node::~Node() = default;
Node::Node(Node&&) noexcept = default;
Node& Node::operator=(Node&&) noexcept = default;

void Node::Submit(std::span<const Request> group, double now) {
  Impl& m = *impl_;
  // The usual case, without a copy: one tensor, cached, nothing in the way.
  if (group.size() == 1 && m.aborted.ok() && m.deferred.empty()) {
    const Request& r = group[0];
    const int32_t id = m.cache.IdOf({r.process_set, r.name});
    if (id >= 0) {
      const auto slot = static_cast<uint32_t>(id);
      Slot& s = m.cache.at(slot);
      const bool free = !s.in_tally && !(m.cache.mask(slot)[0] & 1) && !(m.own_joined && s.process_set == 0);
      if (free && m.sets.at(s.process_set).own && SameSignature(*s.request, r)) {
        s.own_ticket = r.ticket;
        ++m.own_waiting;
        m.MarkSlot(slot, 0, now);
        m.Finish(now);
        return;
      }
    }
  }
  Impl::Deferred wish;
  wish.group.assign(group.begin(), group.end());
  m.SubmitOrDefer(std::move(wish), now);
  m.Finish(now);
}

void Node::Refuse(std::span<const Request> group, const std::string& reason, double now) {
  Impl::Deferred wish;
  wish.group.assign(group.begin(), group.end());
  wish.refusal = true;
  wish.reason = reason;
  impl_->SubmitOrDefer(std::move(wish), now);
  impl_->Finish(now);
}

void Node::Refuse(OpType type, int process_set, const std::string& name, const std::string& reason, double now) {
  Request r;
  r.type = type;
  r.process_set = process_set;
  r.name = name;
  Refuse(std::span(&r, 1), reason, now);
}

void Node::Join(uint64_t ticket, double now) {
  Impl& m = *impl_;
  Request r;
  r.ticket = ticket;
  if (Status no = m.WhyNot(r); !no.ok()) {
    m.ActFail(OpType::kJoin, 0, "join", ticket, no.Because("join"));
    return;
  }
  m.join_ticket = ticket;
  if (m.AnyDeferredIn(0)) {
    m.join_waits = true;
  } else {
    m.JoinNow(now);
  }
  m.Finish(now);
}

void Node::AddSet(std::vector<int> ranks, uint64_t ticket, double now) {
  Request r;
  r.type = kAddSetType;
  std::sort(ranks.begin(), ranks.end());
  r.shape.assign(ranks.begin(), ranks.end());
  r.ticket = ticket;
  impl_->ChangeSets(std::move(r), now);
  impl_->Finish(now);
}

void Node::RemoveSet(int id, uint64_t ticket, double now) {
  Request r;
  r.type = kRemoveSetType;
  r.root = id;
  r.ticket = ticket;
  impl_->ChangeSets(std::move(r), now);
  impl_->Finish(now);
}

void Node::Goodbye(double now) {
  Impl& m = *impl_;
  if (m.goodbye) return;
  m.goodbye = true;
  if (m.cut || !m.aborted.ok()) {
    m.own_left = true;
    Action a;
    a.kind = Action::Kind::kLeft;
    a.rank = m.place.rank;
    m.actions.push_back(std::move(a));
  } else if (m.is_root()) {
    m.to_leave.push_back(m.place.rank);
  } else {
    m.out.Up(UpRecord::kGoodbye, m.version).Varint(static_cast<uint32_t>(m.place.rank));
  }
  m.Finish(now);
}

void Node::Abort(const Status& reason, double now) {
  impl_->DoAbort(reason, false);
  impl_->Finish(now);
}

void Node::PeerLost(int rank, const std::string& reason, double now) {
  Impl& m = *impl_;
  m.lost.push_back({rank, reason, now + m.config.lost_grace_s});
  m.JudgeLost(now);
  m.Finish(now);
}

Status Node::Receive(int from_rank, std::span<const std::byte> frame, double now) {
  Impl& m = *impl_;
  const bool from_parent = !m.is_root() && from_rank == m.place.parent;
  const int source = from_parent ? 0 : m.place.SourceOfNeighbour(from_rank);
  if (source < 0) {
    return {Code::kInternal, "control frame from rank " + std::to_string(from_rank) +
                                 " refused: it is no neighbour of rank " + std::to_string(m.place.rank) +
                                 " in the tree"};
  }
  FrameHeader header;
  const FrameHeader expected{from_parent ? Direction::kDown : Direction::kUp, static_cast<uint32_t>(from_rank),
                             m.config.epoch, 0};
  HVD_TRY(ReadHeader(frame, expected, &header));
  const std::string who = "control frame from rank " + std::to_string(from_rank) + " refused";
  if (header.number != m.frames_received[source]) {
    return Status(Code::kInternal, "it has number " + std::to_string(header.number) + ", expected " +
                                       std::to_string(m.frames_received[source]))
        .Because(who);
  }
  ++m.frames_received[source];
  if (from_parent) {
    m.heard_at = now;
    m.asked_at = -1;
  }
  if (!m.aborted.ok()) return {};
  ByteReader r(frame.subspan(kFrameHeaderBytes));
  Status status = from_parent ? m.ApplyLog(&r, now) : m.ReceiveUp(source, &r, now);
  if (status.ok()) status = r.status("a record");
  if (!status.ok()) return status.Because(who);
  if (from_parent && !m.place.children.empty()) m.out.ForwardDown(frame.subspan(kFrameHeaderBytes));
  m.Finish(now);
  return {};
}

bool Node::HasOutgoing() const {
  const Impl& m = *impl_;
  return (m.out.has_up() && !m.is_root()) || (m.out.has_down() && !m.place.children.empty());
}

void Node::TakeOutgoing(const std::function<void(int, std::span<const std::byte>)>& send) {
  Impl& m = *impl_;
  if (m.out.has_up()) {
    if (!m.is_root() && !m.left.Contains(m.place.parent)) send(m.place.parent, m.out.UpFrame());
    m.out.ClearUp();
  }
  if (m.out.has_down()) {
    const std::span<const std::byte> frame = m.out.DownFrame();
    // Who leaves is told last: it may be gone the moment it knows, and the others must not take that for a death.
    auto leaves = [&](int c) {
      return std::find(m.leaving_children.begin(), m.leaving_children.end(), c) != m.leaving_children.end();
    };
    for (int child : m.place.children) {
      if (!m.gone_children.Contains(child) && !leaves(child)) send(child, frame);
    }
    for (int child : m.leaving_children) send(child, frame);
    m.out.ClearDown();
    m.log_applied = 0;
  }
  for (int child : m.leaving_children) m.gone_children.Add(child);
  m.leaving_children.clear();
}

std::vector<Action>& Node::actions() { return impl_->actions; }
bool Node::aborted() const { return !impl_->aborted.ok(); }
void Node::set_fusion_threshold_bytes(int64_t bytes) { impl_->config.fusion_threshold_bytes = bytes; }
void Node::set_linger_s(double seconds) { impl_->config.linger_s = seconds; }
std::vector<int> Node::SetIds() const { return impl_->sets.Ids(); }
std::vector<int> Node::SetRanks(int id) const {
  const ProcessSet* set = impl_->sets.Find(id);
  return set ? set->ranks.ToVector() : std::vector<int>();
}

}  // namespace hvd
