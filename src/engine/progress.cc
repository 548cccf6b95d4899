#include "engine/progress.h"

#include <algorithm>
#include <cstdio>

#include "base/log.h"

namespace hvd::engine {
namespace {

// How often a rank that waits asks whether the hosts of the others still answer.
constexpr double kCheckPeersS = 0.25;

}  // namespace

bool Progress::Step() {
  bool moved = tools_.feed->PassOn();
  // Others may wait for nothing else: it leaves before this rank looks what has come.
  if (moved && tools_.node->brings_directly()) SendOutgoing();
  moved |= tools_.connections->TakeOpened();
  moved |= ReadLinks();
  moved |= Decide();
  if (tools_.executor->size() > 0 && tools_.executor->Advance()) {
    moved = true;
    last_movement_s_ = 0;
    auto* const neighbours = tools_.connections->neighbours();
    if (neighbours != nullptr && tools_.executor->running()) neighbours->NoteMove(tools_.executor->running_seq());
    Decide();  // the root may have held tensors back for this
  }
  // A goodbye is complete when everything before it in the log is done and said.
  if (tools_.orders->own_goodbye_said() && tools_.executor->size() == 0 && !tools_.connections->links().HasUnsent() &&
      !goodbye_.done()) {
    tools_.connections->SetLastWord(transport::LastWord::kGoodbye);
    tools_.arrivals->Arrive(goodbye_, Status());
  }
  return moved;
}

void Progress::Announce() {
  tools_.feed->PassOn();
  while (ReadLinks()) {  // to the end: nothing wakes anybody for what has come before
  }
  Decide();
}

bool Progress::ReadLinks() {
  bool moved = false;
  const auto deliver = [this](int from, std::span<const std::byte> frame) {
    return tools_.node->Receive(from, frame, (*tools_.stamp)());
  };
  ControlLinks& links = tools_.connections->links();
  const Status broken = links.Receive(deliver, &moved);
  if (broken.ok()) return moved;
  LinkBroken(broken);
  return true;
}

void Progress::LinkBroken(const Status& why) {
  Decide();  // its last words may say why: they come before the end of the stream
  if (tools_.verdict->failed()) return;
  const int rank = tools_.connections->links().broken_rank();
  // Without a log nobody says goodbye any more. What a batch under way needs of that rank comes, or not, by its own
  // way.
  if (tools_.watch->has_left(rank) || tools_.node->log_ended()) return;
  if (why.code() == Code::kPeerLost && (!tools_.connections->in_tree(rank) || tools_.node->has_unread(rank)))
    return tools_.node->LinkLost(rank, why.message(), NowS());
  if (why.code() == Code::kPeerLost) tools_.node->PeerLost(rank, why.message(), NowS());
  tools_.verdict->Fail(why, true);
}

// Root: make batches of what is ready. All: obey what the log says, send what the negotiation wants sent.
bool Progress::Decide() {
  negotiation::Node& node = *tools_.node;
  for (bool moved = false;; moved = true) {
    if (node.wants_flush()) node.Flush((*tools_.stamp)(), static_cast<int>(tools_.executor->size()), someone_waits_);
    moved |= SendOutgoing();
    if (node.actions().empty()) return moved;
    obeying_.swap(node.actions());
    for (negotiation::Action& action : obeying_) tools_.orders->Obey(action);
    obeying_.clear();
  }
}

bool Progress::SendOutgoing() {
  if (!tools_.node->HasOutgoing()) return false;
  tools_.node->TakeOutgoing([this](int to, std::span<const std::byte> frame) {
    if (Status s = tools_.connections->links().Send(to, frame); !s.ok())
      Log(LogLevel::kDebug, s.message());  // Receive reports a broken link
  });
  tools_.feed->RingParent();
  return true;
}

void Progress::Look() {
  if (tools_.watch->TakeNoticed()) {
    while (ReadLinks()) {  // a goodbye, or why the others give up: it was there before the end
    }
    Decide();
  }
  CheckClock();
}

bool Progress::CheckClock() {
  const double now = NowS();
  if (now >= tools_.node->next_deadline()) tools_.node->Tick(now);
  while (const auto death = tools_.watch->Judge(now)) tools_.verdict->Lost(*death, now);
  tools_.verdict->CheckClock(now);
  CheckMovement(now);
  CheckPeers(now);
  return Decide();
}

void Progress::CheckMovement(double now) {
  if (!tools_.executor->running()) return;
  if (HostHasMoved() || last_movement_s_ == 0) last_movement_s_ = now;
  if (now - last_movement_s_ >= collective_timeout_s_) return tools_.verdict->Fail(TimedOut(), true);
}

void Progress::CheckPeers(double now) {
  if (now < next_check_s_ || !may_wait_for_other_hosts()) return;
  next_check_s_ = now + kCheckPeersS;
  if (tools_.executor->running()) {
    const Status status =
        tools_.connections->CheckPeers(now, [this](int rank) { return tools_.watch->has_left(rank); });
    if (!status.ok()) return tools_.verdict->Fail(status.Because(tools_.executor->Describe()), true);
  }
  const Status silent = tools_.connections->links().CheckPeers(now);
  if (!silent.ok()) LinkBroken(silent);
}

// A rank beside one that receives slowly from another host has nothing to do, and waits on.
bool Progress::HostHasMoved() {
  const auto* const neighbours = tools_.connections->neighbours();
  if (neighbours == nullptr || tools_.connections->one_host()) return false;
  const uint64_t before = moves_before_;
  moves_before_ = neighbours->Moves(tools_.executor->running_seq());
  return moves_before_ != before;
}

Status Progress::TimedOut() const {
  const transport::Neighbours* const neighbours = tools_.connections->neighbours();
  int rank = tools_.executor->waiting_for();
  if (rank < 0 && neighbours != nullptr && neighbours->waiting_for() >= 0)
    rank = neighbours->rank(neighbours->waiting_for());
  std::string who = rank >= 0 ? "; waiting for rank " + std::to_string(rank) : "";
  if (tools_.connections->openings().lacks(rank)) who += ", to which no connection could be opened";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", collective_timeout_s_);
  return Status(Code::kTimeout, tools_.executor->Describe() + ": no progress for " + seconds + " s on rank " +
                                    std::to_string(tools_.connections->transports().rank) + who +
                                    " (HOROVOD_GLOO_TIMEOUT_SECONDS). Is that process stopped or overloaded?");
}

double Progress::NextDeadline() const {
  double at = std::min({tools_.node->next_deadline(), tools_.verdict->deadline(), tools_.watch->next_deadline()});
  if (tools_.executor->running()) {
    at = std::min(at, (last_movement_s_ == 0 ? NowS() : last_movement_s_) + collective_timeout_s_);
    at = std::min(at, NowS() + tools_.executor->LookAgainInS());
  }
  if (may_wait_for_other_hosts()) at = std::min(at, next_check_s_);
  return at;
}

void Progress::RanOutOfMemory() noexcept {
  tools_.verdict->Fail(OutOfMemory(), true);
  obeying_.clear();
  tools_.feed->Drop();
}

}  // namespace hvd::engine
