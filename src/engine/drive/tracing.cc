#include "engine/drive/tracing.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/wake/clock.h"

namespace hvd::engine {
namespace {

// What all ranks together send in a second at most: rank 0 has to take it in.
constexpr double kBytesPerS = 64e6;
constexpr double kMostAtOnce = 256e3;
constexpr double kLeastPauseS = 1e-3;
// For batches that have been agreed upon before the end of the trace.
constexpr double kLastBatchesS = 1;
// A rank that has more than this to send to its parent passes no more pieces of others on.
constexpr size_t kMostUnsent = size_t{4} << 20;

int LeaderOf(const std::vector<int>& host_of_rank, int rank) {
  const auto found = std::find(host_of_rank.begin(), host_of_rank.end(), host_of_rank[static_cast<size_t>(rank)]);
  return static_cast<int>(found - host_of_rank.begin());
}

}  // namespace

Tracing::Tracing(const Tools& tools, Job job)
    : tools_(tools),
      job_(std::move(job)),
      leader_(LeaderOf(job_.host_of_rank, job_.part.rank)),
      ended_(job_.host_of_rank.size(), 1),
      left_(job_.host_of_rank.size(), 0) {}

bool Tracing::Pass(double now) {
  const bool due = tools_.timeline->TakeDue();
  if (root()) {
    if (due) AskClocks(now);
    return due;
  }
  const double rate = kBytesPerS / size();
  allowed_ = std::min(allowed_ + (now - allowed_at_) * rate, kMostAtOnce);
  allowed_at_ = now;
  allowed_from_ = std::numeric_limits<double>::infinity();
  more_ = !tools_.timeline->pieces().empty();
  if (!more_) return false;
  if (allowed_ <= 0) {
    allowed_from_ = now + kLeastPauseS - allowed_ / rate;
    return false;
  }
  // What waits for the connection is sent by and by: this rank looks until it is.
  if (tools_.connections->links().UnsentTo(tools_.connections->parent()) > 0) return false;
  negotiation::TracePiece piece;
  if (!tools_.timeline->pieces().Take(&piece)) return false;
  allowed_ -= static_cast<double>(piece.text.size());
  tools_.node->SendUp(piece);
  return true;
}

void Tracing::PassAll() {
  negotiation::TracePiece piece;
  while (!root() && tools_.timeline->pieces().Take(&piece)) tools_.node->SendUp(piece);
}

void Tracing::Order(const negotiation::TraceOrder& order, uint64_t ticket, double now) {
  end_ticket_ = ticket;
  if (order.on) {
    number_ = order.number;
    AwaitThoseBelow();
    clocks_.clear();
  }
  if (root()) tools_.node->OrderTrace(order, now);
  EndIfAll();
}

void Tracing::AwaitThoseBelow() {
  ended_.assign(ended_.size(), 1);
  for (const int rank : tools_.node->RanksBelow()) ended_[static_cast<size_t>(rank)] = left_[static_cast<size_t>(rank)];
  awaits_others_ = std::find(ended_.begin(), ended_.end(), 0) != ended_.end();
}

void Tracing::EndIfAll() {
  awaits_others_ = std::find(ended_.begin(), ended_.end(), 0) != ended_.end();
  if (awaits_others() || end_ticket_ == 0) return;
  auto wish = tools_.submissions->TakeWish(std::exchange(end_ticket_, 0));
  if (wish) tools_.arrivals->ArriveTaken(std::move(wish), Status());
}

void Tracing::Left(int rank) {
  left_[static_cast<size_t>(rank)] = ended_[static_cast<size_t>(rank)] = 1;
  EndIfAll();
}

void Tracing::EndPart(bool idle, double now) {
  if (!idle && now < ends_by_) return;
  ends_by_ = std::numeric_limits<double>::infinity();
  tools_.timeline->BeginStop();
}

void Tracing::Obey(const negotiation::TraceOrder& order, double now) {
  if (root()) return;
  ends_by_ = order.on ? std::numeric_limits<double>::infinity() : now + kLastBatchesS;
  if (!order.on) return;
  number_ = order.number;
  AwaitThoseBelow();
  tools_.timeline->BeginStop();  // of a trace whose end this rank learns of only now
  Timeline::Plan part = job_.part;
  part.number = order.number;
  part.mark_cycles = order.mark_cycles;
  part.base_us = order.base_us;
  part.all_ranks = true;
  part.other_hosts = leader_ != 0;  // its clock is not rank 0's
  if (Status s = tools_.timeline->Start(part); !s.ok()) {
    Log(LogLevel::kWarning, "this rank has no part in the timeline: " + s.message());
    tools_.timeline->pieces().Begin(part.rank, part.number);
    tools_.timeline->pieces().End();
    PassAll();
  }
}

void Tracing::Take(negotiation::TracePiece& piece) {
  if (piece.number == number_ && piece.kind == negotiation::TracePiece::Kind::kEnd) {
    ended_[static_cast<size_t>(piece.rank)] = 1;
    if (!root()) tools_.node->SendUp(piece);
    return EndIfAll();
  }
  if (!root()) {
    const size_t unsent = tools_.connections->links().UnsentTo(tools_.connections->parent());
    if (unsent > kMostUnsent && piece.kind == negotiation::TracePiece::Kind::kEvents)
      return tools_.timeline->pieces().Dropped(piece.rank, piece.events);
    return tools_.node->SendUp(piece);
  }
  if (piece.number != number_) return;  // of an earlier trace
  tools_.timeline->Write(std::move(piece));
}

void Tracing::AskClocks(double now) {
  negotiation::ClockQuestion question;
  for (const auto& [rank, clock] : clocks_) {
    if (clock.known()) question.hosts.push_back({rank, clock.offset_s(), clock.error_s()});
  }
  question.asked_s = NowS();
  tools_.node->AskClocks(question, now);
}

void Tracing::Answer(const negotiation::ClockQuestion& question, double now) {
  if (leader_ == 0) return;  // rank 0's own clock
  if (leader_ == job_.part.rank)
    tools_.node->SendUp(negotiation::ClockAnswer{job_.part.rank, NowS(), now - question.asked_s});
  for (const negotiation::HostClock& host : question.hosts) {
    if (host.rank == leader_) tools_.timeline->SetClock(host.offset_s, host.error_s);
  }
}

void Tracing::Take(const negotiation::ClockAnswer& answer, double now) {
  if (!root()) return tools_.node->SendUp(answer);
  clocks_[answer.rank].Add(answer.down_s, now - answer.sent_s);
}

}  // namespace hvd::engine
