#include "engine/drive/progress.h"

#include <algorithm>
#include <cstdio>

#include "base/log.h"

namespace hvd::engine {
namespace {

// How often a rank that waits asks whether the hosts of the others still answer.
constexpr double kCheckPeersS = 0.1;
// How often a rank that has said goodbye looks whether its devices are through: nothing wakes it for that.
constexpr double kCheckDevicesS = 0.001;

constexpr double kNever = std::numeric_limits<double>::infinity();

using backend::Track;

}  // namespace

bool Progress::Step() {
  bool moved = tools_.feed->PassOn();
  // Others may wait for nothing else: it leaves before this rank looks what has come.
  if (moved && tools_.node->brings_directly()) SendOutgoing();
  moved |= tools_.connections->TakeOpened();
  moved |= ReadLinks();
  moved |= tools_.tracing->PassOn(NowS);
  moved |= Decide();
  if (tools_.executor->size() > 0) moved |= Advance();
  if (tools_.tracing->ending()) tools_.tracing->EndPart(tools_.executor->size() == 0, NowS());
  if (tools_.orders->own_goodbye_said() && !goodbye_.done()) SayGoodbye();
  return moved;
}

bool Progress::Advance() {
  const Executor::Moved moved = tools_.executor->Advance();
  if (!moved) return false;
  if (moved.device) last_device_movement_s_ = 0;
  if (moved.host) {
    last_movement_s_ = 0;
    auto* const neighbours = tools_.connections->neighbours();
    if (neighbours != nullptr && tools_.executor->running(Track::kHost))
      neighbours->NoteMove(tools_.executor->running_seq());
  }
  Decide();  // the root may have held tensors back for this
  return true;
}

// It is complete when everything before it in the log is done and said, by devices too: others still need what they do.
void Progress::SayGoodbye() {
  if (tools_.executor->size() > 0 || tools_.connections->links().HasUnsent()) return;
  CheckDevices(NowS());
  if (!tools_.verdict->failed() && tools_.backends->next_check(collective_timeout_s_) < kNever) return;
  tools_.connections->SetLastWord(transport::LastWord::kGoodbye);
  tools_.arrivals->Arrive(goodbye_, Status());
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
  // Without a log nobody says goodbye any more. If a batch under way needs that rank, its data channel tells.
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
  CheckDevices(now);
  CheckPeers(now);
  return Decide();
}

void Progress::CheckMovement(double now) {
  if (tools_.executor->running(Track::kHost) && HostHasMoved()) last_movement_s_ = now;
  CheckTrack(Track::kHost, now, &last_movement_s_);
  CheckTrack(Track::kDevice, now, &last_device_movement_s_);
}

void Progress::CheckTrack(Track track, double now, double* last_movement_s) {
  if (!tools_.executor->running(track)) return;
  if (*last_movement_s == 0) *last_movement_s = now;
  if (now - *last_movement_s >= PatienceWith(track)) tools_.verdict->Fail(TimedOut(track), true);
}

// What devices do for batches whose task has ended.
void Progress::CheckDevices(double now) {
  if (tools_.backends->devices() == nullptr || tools_.verdict->failed()) return;
  const Status status = tools_.backends->CheckDevices(now, collective_timeout_s_);
  if (!status.ok()) return tools_.verdict->Fail(status, true);
  tools_.executor->FreeStandIns();
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

Status Progress::TimedOut(Track track) const {
  const transport::Neighbours* const neighbours = tools_.connections->neighbours();
  int rank = tools_.executor->waiting_for(track);
  if (track == Track::kHost && rank < 0 && neighbours != nullptr && neighbours->waiting_for() >= 0)
    rank = neighbours->rank(neighbours->waiting_for());
  std::string who = rank >= 0 ? "; waiting for rank " + std::to_string(rank) : "";
  if (tools_.connections->openings().lacks(rank)) who += ", to which no connection could be opened";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", PatienceWith(track));
  const char* const times = tools_.executor->waits_for_devices(track) ? "20 times " : "";
  return Status(Code::kTimeout, tools_.executor->Describe(track) + ": no progress for " + seconds + " s on rank " +
                                    std::to_string(tools_.connections->transports().rank) + who + " (" + times +
                                    "HOROVOD_GLOO_TIMEOUT_SECONDS). Is that process stopped or overloaded?");
}

double Progress::PatienceWith(Track track) const {
  return collective_timeout_s_ * (tools_.executor->waits_for_devices(track) ? backend::kDevicePatience : 1);
}

double Progress::MustHaveMovedBy(Track track, double last_movement_s) const {
  return (last_movement_s == 0 ? NowS() : last_movement_s) + PatienceWith(track);
}

double Progress::NextDeviceCheck() const {
  const double at = tools_.backends->next_check(collective_timeout_s_);
  return at < kNever && tools_.orders->own_goodbye_said() ? std::min(at, NowS() + kCheckDevicesS) : at;
}

double Progress::NextDeadline() const {
  double at = std::min({tools_.node->next_deadline(), tools_.verdict->deadline(), tools_.watch->next_deadline(),
                        tools_.tracing->next_deadline()});
  if (tools_.executor->running(Track::kHost)) at = std::min(at, MustHaveMovedBy(Track::kHost, last_movement_s_));
  if (tools_.executor->running(Track::kDevice))
    at = std::min(at, MustHaveMovedBy(Track::kDevice, last_device_movement_s_));
  if (tools_.executor->running()) at = std::min(at, NowS() + tools_.executor->LookAgainInS());
  if (tools_.backends->devices() != nullptr) at = std::min(at, NextDeviceCheck());
  if (may_wait_for_other_hosts()) at = std::min(at, next_check_s_);
  return at;
}

void Progress::RanOutOfMemory() noexcept {
  tools_.verdict->Fail(OutOfMemory(), true);
  obeying_.clear();
  tools_.feed->Drop();
}

}  // namespace hvd::engine
