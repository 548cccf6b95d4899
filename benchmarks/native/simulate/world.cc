#include "world.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace hvd::simulate {
namespace {

constexpr double kHeaderBytes = 32;         // of PlanRun
constexpr uint32_t kWindowBytes = 4 << 20;  // of a connection: what its sender may have under way
constexpr double kTurnBytes = 64 << 10;     // what a receiver reads at a time, so that it copies while the rest arrives
constexpr double kInsideTurnS = 50e-6;      // of work inside the host between two looks at the network

}  // namespace

World::World(const Layout& layout, const Costs& costs, std::vector<Program> programs)
    : layout_(layout),
      costs_(costs),
      nics_(layout.hosts, costs.bytes_per_s),
      insides_done_(layout.hosts),
      events_(2 * static_cast<size_t>(layout.size()) + 3 * static_cast<size_t>(layout.hosts)) {
  ranks_.reserve(programs.size());
  for (Program& program : programs) ranks_.emplace_back().program = std::move(program);
}

Outcome World::Run() {
  for (int r = 0; r < layout_.size(); ++r) Wake(r, 0);
  while (!events_.empty()) {
    const Events::Event event = events_.Take();
    if (const Kind kind = KindOf(event.lane); kind != Kind::kWake) {
      Move(kind, event.what, event.at);
      continue;
    }
    const auto r = static_cast<int>(event.lane);
    ranks_[r].wakes = false;
    Serve(r, event.at);
  }
  for (int r = 0; r < layout_.size(); ++r) {
    const Rank& rank = ranks_[r];
    outcome_.seconds = std::max(outcome_.seconds, rank.free_at);
    outcome_.connections = std::max(outcome_.connections, rank.connections.across());
    if (rank.at < rank.program.size() && outcome_.wrong.empty())
      outcome_.wrong = "rank " + std::to_string(r) + " hangs in step " + std::to_string(rank.at);
  }
  outcome_.link_bytes = nics_.MostBytes();
  return outcome_;
}

// Lanes 0 to n-1 are the ranks' waking, the next n their sending; then each host's way out, in, and inside.
size_t World::LaneOf(Kind kind, int rank) const {
  const auto n = static_cast<size_t>(layout_.size()), hosts = static_cast<size_t>(layout_.hosts);
  const auto host = static_cast<size_t>(layout_.host_of(rank));
  switch (kind) {
    case Kind::kWake:
      return static_cast<size_t>(rank);
    case Kind::kSubmit:
      return n + static_cast<size_t>(rank);
    case Kind::kArriving:
      return 2 * n + host;
    case Kind::kArrived:
      return 2 * n + hosts + host;
    case Kind::kArrivedInside:
      break;
  }
  return 2 * n + 2 * hosts + host;
}

World::Kind World::KindOf(size_t lane) const {
  const auto n = static_cast<size_t>(layout_.size()), hosts = static_cast<size_t>(layout_.hosts);
  if (lane < 2 * n) return lane < n ? Kind::kWake : Kind::kSubmit;
  if (lane < 2 * n + hosts) return Kind::kArriving;
  return lane < 2 * n + 2 * hosts ? Kind::kArrived : Kind::kArrivedInside;
}

void World::Wake(int rank, double at) {
  if (std::exchange(ranks_[rank].wakes, true)) return;
  Post(std::max(at, ranks_[rank].free_at), Kind::kWake, rank, {});
}

// A message on its way: handed over, at the other host's link, there. Each is posted in a lane in which times only
// grow: the sender's link, the receiver's, the inside of a host.
void World::Move(Kind kind, const Message& m, double now) {
  const double size = m.bytes + kHeaderBytes;
  switch (kind) {
    case Kind::kSubmit:
      if (!Across(m)) return Post(now + costs_.local_s, Kind::kArrivedInside, m.to, m);
      ++outcome_.messages;
      return Post(nics_.Leave(layout_.host_of(m.from), now, size) + costs_.hop_s, Kind::kArriving, m.from, m);
    case Kind::kArriving:
      return Post(nics_.Arrive(layout_.host_of(m.to), now, size), Kind::kArrived, m.to, m);
    case Kind::kArrived:
    case Kind::kArrivedInside:
      mailroom_.Put(&ranks_[m.to].connections.With(m.from).inbox, m);
      ranks_[m.from].connections.With(m.to).unacknowledged -= m.bytes;
      Wake(m.to, now);
      return Wake(m.from, now);
    case Kind::kWake:
      return;
  }
}

bool World::PlanDone(const Rank& rank) const {
  return rank.sent == rank.plan.sends.size() && rank.received == rank.plan.receives.size();
}

// True: the step takes time.
bool World::Begin(Rank& rank) {
  Step& step = rank.program[rank.at];
  if (step.kind == Step::kAwait) return !PlanDone(rank);
  if (step.kind == Step::kInside) {
    rank.inside_left = std::max(step.inside_s, 1e-12);  // even nothing is waited for
    ++rank.insides;
    return true;
  }
  rank.plan = step.plan();
  rank.current = std::move(step);
  rank.sent = rank.received = 0;
  for (const auto* list : {&rank.plan.sends, &rank.plan.receives}) {
    if (!list->empty()) outcome_.steps = std::max(outcome_.steps, static_cast<int>(list->size()));
  }
  return false;
}

bool World::PassSteps(int r) {
  Rank& rank = ranks_[r];
  std::vector<int>& done = insides_done_[layout_.host_of(r)];
  while (rank.at < rank.program.size()) {
    if (!rank.begun && Begin(rank)) rank.begun = true;
    if (rank.begun) {
      const bool inside = rank.program[rank.at].kind == Step::kInside;
      if (inside && (rank.inside_left > 0 || done.size() < rank.insides || done[rank.insides - 1] < layout_.locals))
        return true;
      if (!inside && !PlanDone(rank)) return true;
    }
    rank.begun = false;
    ++rank.at;
  }
  return !PlanDone(rank);
}

void World::Serve(int r, double now) {
  Rank& rank = ranks_[r];
  if (now < rank.free_at) return Wake(r, rank.free_at);
  if (!PassSteps(r)) return;
  double cost = 0;
  for (int side = 0; side < 2 && cost == 0; ++side) {
    rank.receive_next = !rank.receive_next;
    cost = rank.receive_next ? ReceiveOne(r, now) : SendOne(r, now);
  }
  cost += WorkInside(r, now);
  if (cost == 0) return;  // whatever comes wakes it
  rank.free_at = now + cost;
  Wake(r, rank.free_at);
}

double World::SendOne(int r, double now) {
  Rank& rank = ranks_[r];
  if (rank.sent == rank.plan.sends.size()) return 0;
  const collective::channels::Transfer& t = rank.plan.sends[rank.sent];
  if (rank.received < t.after) return 0;
  const int to = (*rank.current.team)[t.peer];
  const Message m{r, to, t.step, t.segment, static_cast<uint32_t>(t.range.size() * rank.current.unit_bytes)};
  Connections::Connection& connection = rank.connections.With(to);
  if (connection.unacknowledged > 0 && connection.unacknowledged + m.bytes > kWindowBytes) return 0;
  connection.unacknowledged += m.bytes;
  if (Across(m)) rank.connections.CountAcross(&connection);
  ++rank.sent;
  const double cost = costs_.message_s + m.bytes * costs_.copy_s_per_byte;
  // The first bytes leave while the others are still copied.
  Post(now + std::min(cost, costs_.message_s + kTurnBytes * costs_.copy_s_per_byte), Kind::kSubmit, r, m);
  return cost;
}

double World::ReceiveOne(int r, double now) {
  Rank& rank = ranks_[r];
  if (rank.received == rank.plan.receives.size()) return 0;
  const collective::channels::Transfer& t = rank.plan.receives[rank.received];
  if (rank.sent < t.after) return 0;
  Connections::Connection& connection = rank.connections.With((*rank.current.team)[t.peer]);
  const std::optional<Message> found = mailroom_.Take(&connection.inbox);
  if (!found) return 0;
  const Message& m = *found;
  const auto bytes = static_cast<double>(t.range.size() * rank.current.unit_bytes);
  if ((m.step != t.step || m.segment != t.segment || m.bytes != bytes) && outcome_.wrong.empty())
    outcome_.wrong = "rank " + std::to_string(r) + " got another message than its plan says";
  ++rank.received;
  if (Across(m)) rank.connections.CountAcross(&connection);
  // While it had nothing else to do it has copied what was there already, but for the last piece.
  const double copying = bytes * costs_.copy_s_per_byte;
  const double last = std::min(bytes, kTurnBytes) * costs_.copy_s_per_byte;
  const bool combines = t.action != collective::channels::Action::kStore;
  return costs_.message_s + std::max(last, copying - (now - rank.free_at)) +
         (combines ? bytes * costs_.combine_s_per_byte : 0);
}

double World::WorkInside(int r, double now) {
  Rank& rank = ranks_[r];
  if (rank.inside_left <= 0) return 0;
  const double cost = std::min(rank.inside_left, kInsideTurnS);
  rank.inside_left -= cost;
  if (rank.inside_left > 0) return cost;
  rank.inside_left = 0;
  const int host = layout_.host_of(r);
  std::vector<int>& done = insides_done_[host];
  if (done.size() < rank.insides) done.resize(rank.insides, 0);
  if (++done[rank.insides - 1] < layout_.locals) return cost;
  for (int l = 0; l < layout_.locals; ++l) {
    if (host * layout_.locals + l != r) Wake(host * layout_.locals + l, now + cost);
  }
  return cost;
}

}  // namespace hvd::simulate
