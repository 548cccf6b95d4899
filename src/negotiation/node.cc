// The public calls of a Node.
#include "negotiation/node.h"

#include <algorithm>
#include <utility>

#include "negotiation/negotiator.h"
#include "negotiation/values/new_set.h"

namespace hvd::negotiation {

Node::Node(NodeConfig config) : n_(std::make_unique<Negotiator>(std::move(config))) {}
Node::~Node() = default;
Node::Node(Node&&) noexcept = default;
Node& Node::operator=(Node&&) noexcept = default;

// ---- own requests

void Node::Submit(std::span<const Request> group, double now) {
  n_->own_requests.Submit(group, now);
  n_->Finish(now);
}

void Node::Refuse(std::span<const Request> group, const std::string& reason, double now) {
  n_->own_requests.Refuse(group, reason, now);
  n_->Finish(now);
}

void Node::Refuse(OpType type, int process_set, const std::string& name, const std::string& reason, double now) {
  Request r;
  r.type = type;
  r.process_set = process_set;
  r.name = name;
  Refuse(std::span(&r, 1), reason, now);
}

void Node::Join(uint64_t ticket, double now) {
  n_->own_requests.Join(ticket, now);
  n_->Finish(now);
}

void Node::AddSet(std::vector<int> ranks, uint64_t ticket, double now, bool by_members) {
  Request r;
  r.type = kAddSetType;
  std::sort(ranks.begin(), ranks.end());
  r.shape.assign(ranks.begin(), ranks.end());
  r.ticket = ticket;
  if (by_members) r.name = NameOfNewSet(ranks);
  n_->own_requests.ChangeSets(std::move(r), now);
  n_->Finish(now);
}

void Node::RemoveSet(int id, uint64_t ticket, double now) {
  Request r;
  r.type = kRemoveSetType;
  r.root = id;
  r.ticket = ticket;
  n_->own_requests.ChangeSets(std::move(r), now);
  n_->Finish(now);
}

void Node::Goodbye(double now, const std::string& why) {
  n_->departures.LeaveSelf(why);
  n_->Finish(now);
}

void Node::Abort(const Status& reason, double now) {
  n_->abort.Raise(reason);
  n_->Finish(now);
}

void Node::PeerLost(int rank, const std::string& reason, double now) {
  n_->departures.Lost(rank, reason, now);
  n_->Finish(now);
}

void Node::LinkLost(int rank, const std::string& reason, double now) {
  constexpr double kGoodbyeS = 2;  // from the end of a connection until the log says why
  n_->departures.Lost(rank, reason, now, kGoodbyeS);
  n_->Finish(now);
}

bool Node::has_unread(int from_rank) const { return n_->inbox.waits_from(from_rank); }

// ---- frames

Status Node::Receive(int from_rank, std::span<const std::byte> frame, double now) {
  return n_->Receive(from_rank, frame, now);
}

bool Node::HasOutgoing() const {
  return (n_->out.has_up() && !n_->place.root()) || (n_->out.has_down() && !n_->place.children.empty()) ||
         n_->out.has_beside() || n_->out.has_near();
}

bool Node::brings_directly() const { return n_->out.has_beside(); }

void Node::TakeOutgoing(const std::function<void(int, std::span<const std::byte>)>& send) {
  Outbox& out = n_->out;
  n_->TakeBeside(send);
  if (out.has_up()) {
    const int parent = n_->place.parent;
    if (!n_->place.root() && !n_->departures.Left(parent)) send(parent, out.UpFrame());
    out.ClearUp();
  }
  if (out.has_down()) {
    const std::span<const std::byte> frame = out.DownFrame();
    for (const int child : n_->departures.Listeners()) send(child, frame);
    out.ClearDown();
  }
  n_->departures.ListenersInformed();
}

// ---- decisions, results, time

bool Node::wants_flush() const { return n_->coordinator.wants_flush(); }

void Node::Flush(double now, int batches_in_flight, bool someone_waits) {
  n_->coordinator.Flush(now, batches_in_flight, someone_waits);
  n_->Finish(now);
}

std::vector<Action>& Node::actions() { return n_->results.list(); }

double Node::next_deadline() const {
  if (aborted()) return kNever;
  return std::min({n_->coordinator.linger_deadline(), n_->departures.next_judgement(), n_->stall.deadline()});
}

void Node::Tick(double now) {
  n_->departures.JudgeLost(now);
  n_->coordinator.FailClashes(n_->stall.FinishDue(now), now);
  n_->stall.Scan(now);
  n_->Finish(now);
}

void Node::ChangeParameters(const Parameters& parameters, double now) {
  n_->coordinator.Change(parameters, now);
  n_->Finish(now);
}

void Node::OrderTrace(const TraceOrder& order, double now) {
  n_->coordinator.Order(order, now);
  n_->Finish(now);
}

void Node::AskClocks(const ClockQuestion& question, double now) {
  n_->coordinator.Ask(question, now);
  n_->Finish(now);
}

void Node::SendUp(const TracePiece& piece) {
  if (n_->place.root() || n_->abort.over()) return;
  ByteWriter w = n_->out.Up(UpRecord::kTrace);
  Write(piece, &w);
}

void Node::SendUp(const ClockAnswer& answer) {
  if (n_->place.root() || n_->abort.over()) return;
  ByteWriter w = n_->out.Up(UpRecord::kClock);
  Write(answer, &w);
}

std::vector<int> Node::RanksBelow() const { return n_->place.subtree.Minus(RankSet::Of(n_->place.rank)).ToVector(); }

std::vector<int> Node::SetIds() const { return n_->sets.Ids(); }
std::vector<int> Node::SetRanks(int id) const {
  const ProcessSet* set = n_->sets.Find(id);
  return set ? set->ranks.ToVector() : std::vector<int>();
}
bool Node::aborted() const { return n_->abort.over(); }
bool Node::log_ended() const { return n_->departures.log_ended(); }

}  // namespace hvd::negotiation
