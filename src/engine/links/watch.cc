#include "engine/links/watch.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "engine/wake/clock.h"

namespace hvd::engine {
namespace {

// For a goodbye in the log to arrive through other ranks. Those are alive, or their own end is noticed; the limit is a
// safeguard.
constexpr double kGoodbyeS = 10;
// For the reason of a rank that gave up. Without it the others fail all the same.
constexpr double kReasonS = 0.1;

double PatienceFor(transport::LastWord word) {
  switch (word) {
    case transport::LastWord::kGoodbye:
      return kGoodbyeS;
    case transport::LastWord::kReason:
      return kReasonS;
    case transport::LastWord::kNone:
      break;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Watch>> Watch::Open(const hvd_config& c, Descriptors* given, Waker* waker,
                                           LastWordOf last_word) {
  std::unique_ptr<Watch> watch(new Watch(waker, std::move(last_word)));
  watch->noticed_.reserve(c.n_peers);
  for (int i = 0; i < c.n_peers; ++i) {
    const int rank = c.peers[i].rank;
    Peer& peer = watch->peers_[rank];
    peer.pid = c.peers[i].pid;
    peer.alive = std::move(given->peers[i].liveness);
    if (peer.alive.valid()) HVD_TRY(waker->WatchProcess(peer.alive.get(), rank));
  }
  return watch;
}

void Watch::NoticeGone(int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  waker_->ForgetProcess(peers_.at(rank).alive.get());
  noticed_.push_back(rank);  // there is room: each rank dies once
  any_noticed_.store(true, std::memory_order_seq_cst);
}

bool Watch::TakeNoticed() {
  if (!any_noticed()) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  any_noticed_.store(false, std::memory_order_seq_cst);
  for (const int rank : noticed_) {
    Peer& peer = peers_.at(rank);
    if (peer.judged_at != 0) continue;
    // Its process is gone, so it says nothing any more: what it has not said by now, it never will.
    peer.judged_at = NowS() + PatienceFor(last_word_(rank));
    ++suspects_;
  }
  noticed_.clear();
  return true;
}

std::optional<Watch::Death> Watch::Judge(double now) {
  if (suspects_ == 0) return std::nullopt;
  for (auto& [rank, peer] : peers_) {
    const bool left = has_left(rank);
    if (peer.judged_at == 0 || (now < peer.judged_at && !left)) continue;
    peer.judged_at = 0;
    --suspects_;
    if (left) continue;
    return Death{rank, Status(Code::kPeerLost, "rank " + std::to_string(rank) + " (pid " + std::to_string(peer.pid) +
                                                   ") died without shutting down; every operation that needs it "
                                                   "fails. Its last output and its launcher's messages say why.")};
  }
  return std::nullopt;
}

double Watch::NextJudgement() const {
  double at = kNever;
  for (const auto& [rank, peer] : peers_) {
    if (peer.judged_at != 0) at = std::min(at, peer.judged_at);
  }
  return at;
}

void Watch::Left(int rank, bool badly) {
  left_.insert(rank);
  if (const auto peer = peers_.find(rank); peer != peers_.end()) peer->second.ended_badly = badly;
}

bool Watch::Lives(int rank) const {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end() || !peer->second.alive.valid()) return true;
  pollfd gone{peer->second.alive.get(), POLLIN, 0};
  return poll(&gone, 1, 0) != 1;
}

void Watch::AwaitCulprits(double seconds) const {
  const double deadline = NowS() + seconds;
  for (const auto& [rank, peer] : peers_) {
    if (!peer.ended_badly || !peer.alive.valid()) continue;
    pollfd gone = {peer.alive.get(), POLLIN, 0};
    while (NowS() < deadline) {
      const int left_ms = static_cast<int>((deadline - NowS()) * 1e3) + 1;
      if (poll(&gone, 1, left_ms) >= 0 || errno != EINTR) break;
    }
  }
}

void Watch::DetachInChild() {
  for (auto& [rank, peer] : peers_) peer.alive.Reset();
}

}  // namespace hvd::engine
