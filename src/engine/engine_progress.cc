// What the holder of the driver role does: pass submissions on, read and write control frames, obey the log, advance
// the running batch, watch the clock. No waiting in here.
#include <algorithm>
#include <ctime>
#include <numeric>

#include "base/log.h"
#include "collective/shm.h"
#include "engine/engine.h"

namespace hvd {
namespace {

// A process that is gone without its goodbye in the log is dead; the goodbye may still be on its way from another rank.
constexpr double kGraceS = 0.1;
// A neighbour that gives up a batch says so in shared memory at once; why comes through the control tree, or from its
// death.
constexpr double kReasonS = 0.5;

std::vector<int64_t> ResultShape(const Job& job, const Tensor& t) {
  std::vector<int64_t> shape = t.shape;
  if (job.batch.type == OpType::kAllgather || job.batch.type == OpType::kAlltoall) {
    shape[0] = std::accumulate(t.received_rows.begin(), t.received_rows.end(), int64_t{0});
  } else if (job.batch.type == OpType::kReducescatter) {
    const Group& group = job.set->group;
    shape[0] = static_cast<int64_t>(BlockOfMember(static_cast<size_t>(shape[0]), group.size(), group.index).count);
  }
  return shape;
}

}  // namespace

bool Engine::Progress() {
  bool moved = PassSubmissions();
  moved |= ReadLinks();
  moved |= Decide();
  if (executor_.size() > 0 && executor_.Advance()) {
    moved = true;
    last_movement_s_ = 0;
    Decide();  // the root may have held tensors back for this
  }
  // A goodbye is complete when everything before it in the log is done and said.
  if (left_ && executor_.size() == 0 && !links_.HasUnsent() && !goodbye_->done()) Arrive(*goodbye_, Status());
  return moved;
}

bool Engine::ReadLinks() {
  bool moved = false;
  const auto deliver = [this](int from, std::span<const std::byte> frame) {
    return node_->Receive(from, frame, StampS());
  };
  const Status broken = links_.Receive(deliver, &moved);
  if (broken.ok()) return moved;
  Decide();  // its last words may say why: they come before the end of the stream
  if (failed_) return true;
  const int rank = links_.broken_rank();
  if (const auto peer = peers_.find(rank); peer != peers_.end() && peer->second.left) return moved;
  if (broken.code() == Code::kPeerLost) node_->PeerLost(rank, broken.message(), NowS());
  Fail(broken, true);
  return true;
}

bool Engine::PassSubmissions() {
  if (!submissions_.Take(&taken_)) return false;
  const double now = StampS();
  for (Submission& s : taken_) Pass(s, now);
  taken_.clear();
  return true;
}

void Engine::Pass(Submission& s, double now) {
  switch (s.kind) {
    case Submission::Kind::kRequests:
      if (timeline_.active()) {
        for (const Request& r : s.requests) {
          timeline_.Begin(r.name, std::string("NEGOTIATE_") + TraceName(r.type, r.op));
          timeline_.RankTick(r.name, rank_);
        }
      }
      return node_->Submit(s.requests, now);
    case Submission::Kind::kRefuse:
      return node_->Refuse(s.requests, s.reason, now);
    case Submission::Kind::kJoin:
      return node_->Join(s.ticket, now);
    case Submission::Kind::kAddSet:
      return node_->AddSet(std::move(s.ranks), s.ticket, now);
    case Submission::Kind::kRemoveSet:
      return node_->RemoveSet(s.process_set, s.ticket, now);
    case Submission::Kind::kGoodbye:
      return node_->Goodbye(now);
  }
}

// Root: make batches of what is ready. All: obey what the log says, send what the negotiation wants sent.
bool Engine::Decide() {
  bool moved = false;
  for (;;) {
    if (node_->wants_flush()) node_->Flush(StampS(), static_cast<int>(executor_.size()), waiting_ > 0);
    if (node_->HasOutgoing()) {
      moved = true;
      node_->TakeOutgoing([this](int to, std::span<const std::byte> frame) {
        if (Status s = links_.Send(to, frame); !s.ok())
          Log(LogLevel::kDebug, s.message());  // Receive reports a broken link
      });
    }
    if (node_->actions().empty()) return moved;
    moved = true;
    obeying_.swap(node_->actions());
    for (Action& action : obeying_) Obey(action);
    obeying_.clear();
  }
}

void Engine::Obey(Action& a) {
  switch (a.kind) {
    case Action::Kind::kExecute:
      if (failed_) return;
      if (timeline_.mark_cycles()) timeline_.Instant("CYCLE_START");
      executor_.Add(a, sets_.Find(a.process_set), &submissions_);
      return;
    case Action::Kind::kFail:
      if (a.ticket & 1) {
        if (auto wish = submissions_.TakeWish(a.ticket)) Arrive(*wish, std::move(a.status));
      } else if (!failed_) {
        Arrive(*submissions_.Take(a.ticket)->completion, std::move(a.status));
      }
      return;
    case Action::Kind::kSetAdded:
    case Action::Kind::kSetRemoved:
    case Action::Kind::kSetFailed:
      if (a.kind == Action::Kind::kSetAdded) sets_.Add(a.process_set, a.ranks);
      if (a.kind == Action::Kind::kSetRemoved) sets_.Remove(a.process_set);
      if (auto wish = submissions_.TakeWish(a.ticket)) {
        wish->value = a.process_set;
        Arrive(*wish, std::move(a.status));
      }
      return;
    case Action::Kind::kJoined:
      if (auto wish = submissions_.TakeWish(a.ticket)) {
        wish->value = a.rank;
        Arrive(*wish, Status());
      }
      return;
    case Action::Kind::kLeft:
      if (a.rank == rank_) {
        left_ = true;
      } else if (auto peer = peers_.find(a.rank); peer != peers_.end()) {
        peer->second.left = true;
      }
      return;
    case Action::Kind::kAbort:
      return Fail(a.status, false);
    case Action::Kind::kLog:
      return Log(static_cast<LogLevel>(a.level), a.name);
  }
}

void Engine::Finish(Job& job, const Status& status, bool fatal) {
  ++batches_;
  tensors_ += job.own.size();
  if (fatal && HoldForReason(job, status)) return;
  for (size_t i = 0; i < job.own.size(); ++i) {
    Submitted* own = job.own[i].get();
    if (own == nullptr) continue;
    Outcome& outcome = own->completion->results[own->index];
    outcome.dtype = job.batch.dtype;
    outcome.tensor = std::move(job.batch.tensors[i]);
    if (status.ok()) outcome.tensor.shape = ResultShape(job, outcome.tensor);
    Arrive(*own->completion, status);
  }
  if (fatal) Fail(status, true);
}

// "Rank 1 gave up", or "closed the connection", helps nobody. True: the tensors wait for what made it do so.
bool Engine::HoldForReason(Job& job, const Status& status) {
  if (failed_) return false;
  bool gave_up =
      status.code() == Code::kPeerLost;  // a closed data channel: its owner may only have suffered from another's death
  if (status.code() == Code::kInternal && transports_.neighbours) {
    const Neighbours& n = *transports_.neighbours;
    for (int i = 0; i < n.size(); ++i) gave_up |= i != n.self() && n.failed_seq(i) != 0;
  }
  if (!gave_up) return false;
  if (held_until_ == 0) {
    held_until_ = NowS() + kReasonS;
    held_why_ = status;
  }
  for (auto& own : job.own) {
    if (own) held_.push_back(own->completion);
  }
  return true;
}

void Engine::Arrive(Completion& completion, Status status) {
  if (!completion.Arrive(std::move(status), &callbacks_)) return;
  if (asleep_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard<std::mutex> lock(wait_mutex_);
    waiters_.notify_all();
  }
}

void Engine::Fail(const Status& why, bool tell_others) {
  if (failed_.exchange(true)) return;
  Log(LogLevel::kDebug, "the engine stops: " + why.message());
  auto unfinished = submissions_.Close(why);
  auto jobs = executor_.Cancel();
  // Neighbours that run a batch with this rank, now or later, must not take its silence for data.
  if (transports_.neighbours) transports_.neighbours->Abandon(executor_.finished_seq() + 1);
  for (auto& job : jobs) {
    for (auto& own : job->own) {
      if (own) Arrive(*own->completion, why);
    }
  }
  for (auto& completion : unfinished) Arrive(*completion, why);
  for (auto& completion : held_) Arrive(*completion, why);
  held_.clear();
  held_until_ = 0;
  if (tell_others) {
    node_->Abort(why, NowS());
    node_->TakeOutgoing([this](int to, std::span<const std::byte> frame) { (void)links_.Send(to, frame); });
  }
  if (transports_.neighbours) transports_.neighbours->FlushRings();
}

// Deadlines: the negotiation's own, the collective time-out, suspected deaths. Returns true if one was due.
bool Engine::CheckClock() {
  const double now = NowS();
  if (now >= node_->next_deadline()) node_->Tick(now);
  JudgeSuspects(now);
  if (held_until_ != 0 && now >= held_until_) Fail(Status(held_why_), true);
  if (executor_.size() > 0 && !failed_) {
    if (last_movement_s_ == 0) last_movement_s_ = now;
    if (now - last_movement_s_ >= collective_timeout_s_) {
      std::string who;
      int rank = executor_.waiting_for();
      if (rank < 0 && transports_.neighbours && transports_.neighbours->waiting_for() >= 0) {
        rank = transports_.neighbours->rank(transports_.neighbours->waiting_for());
      }
      if (rank >= 0) who = "; waiting for rank " + std::to_string(rank);
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%g", collective_timeout_s_);
      Fail(Status(Code::kTimeout, executor_.Describe() + ": no progress for " + seconds + " s on rank " +
                                      std::to_string(rank_) + who +
                                      " (HOROVOD_GLOO_TIMEOUT_SECONDS). Is that process stopped or overloaded?"),
           true);
    }
  }
  return Decide();
}

void Engine::JudgeSuspects(double now) {
  if (suspects_ == 0) return;
  for (auto& [rank, peer] : peers_) {
    if (peer.suspected_at == 0 || now < peer.suspected_at + kGraceS) continue;
    peer.suspected_at = 0;
    --suspects_;
    if (peer.left || failed_) continue;
    const Status why(Code::kPeerLost,
                     "rank " + std::to_string(rank) + " (pid " + std::to_string(peer.pid) +
                         ") died without shutting down; every operation that needs it fails. Its own output says why.");
    if (transports_.neighbours && transports_.local_of_rank[rank] >= 0)
      transports_.neighbours->MarkLost(transports_.local_of_rank[rank], why);
    node_->PeerLost(rank, why.message(), now);
    Fail(why, true);
  }
}

double Engine::NextDeadline() {
  double at = node_->next_deadline();
  if (executor_.size() > 0)
    at = std::min(at, (last_movement_s_ == 0 ? NowS() : last_movement_s_) + collective_timeout_s_);
  if (held_until_ != 0) at = std::min(at, held_until_);
  if (suspects_ == 0) return at;
  for (const auto& [rank, peer] : peers_) {
    if (peer.suspected_at != 0) at = std::min(at, peer.suspected_at + kGraceS);
  }
  return at;
}

// For deadlines of many seconds the coarse clock will do, at a fifth of the price.
double Engine::StampS() const {
  if (lingers_) return NowS();
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

bool Engine::AnythingReady() { return submissions_.any() || links_.AnythingToRead(); }

}  // namespace hvd
