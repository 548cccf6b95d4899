#include "engine/progress.h"

#include <algorithm>
#include <cstdio>

#include "base/log.h"

namespace hvd::engine {

bool Progress::Step() {
  bool moved = tools_.feed->PassOn();
  moved |= ReadLinks();
  moved |= Decide();
  if (tools_.executor->size() > 0 && tools_.executor->Advance()) {
    moved = true;
    last_movement_s_ = 0;
    Decide();  // the root may have held tensors back for this
  }
  // A goodbye is complete when everything before it in the log is done and said.
  if (tools_.orders->own_goodbye_said() && tools_.executor->size() == 0 && !tools_.connections->links().HasUnsent() &&
      !goodbye_.done()) {
    tools_.arrivals->Arrive(goodbye_, Status());
  }
  return moved;
}

void Progress::Announce() {
  tools_.feed->PassOn();
  ReadLinks();
  Decide();
}

bool Progress::ReadLinks() {
  bool moved = false;
  const auto deliver = [this](int from, std::span<const std::byte> frame) {
    return tools_.node->Receive(from, frame, tools_.stamp());
  };
  ControlLinks& links = tools_.connections->links();
  const Status broken = links.Receive(deliver, &moved);
  if (broken.ok()) return moved;
  Decide();  // its last words may say why: they come before the end of the stream
  if (tools_.verdict->failed()) return true;
  const int rank = links.broken_rank();
  // Without a log nobody says goodbye any more. What a batch under way needs of that rank comes, or not, by its own
  // way.
  if (tools_.watch->has_left(rank) || tools_.node->log_ended()) return moved;
  if (broken.code() == Code::kPeerLost) tools_.node->PeerLost(rank, broken.message(), NowS());
  tools_.verdict->Fail(broken, true);
  return true;
}

// Root: make batches of what is ready. All: obey what the log says, send what the negotiation wants sent.
bool Progress::Decide() {
  negotiation::Node& node = *tools_.node;
  for (bool moved = false;; moved = true) {
    if (node.wants_flush()) node.Flush(tools_.stamp(), static_cast<int>(tools_.executor->size()), someone_waits_);
    if (node.HasOutgoing()) {
      moved = true;
      node.TakeOutgoing([this](int to, std::span<const std::byte> frame) {
        if (Status s = tools_.connections->links().Send(to, frame); !s.ok())
          Log(LogLevel::kDebug, s.message());  // Receive reports a broken link
      });
      tools_.feed->RingParent();
    }
    if (node.actions().empty()) return moved;
    obeying_.swap(node.actions());
    for (negotiation::Action& action : obeying_) tools_.orders->Obey(action);
    obeying_.clear();
  }
}

void Progress::Look() {
  tools_.watch->TakeNoticed();
  CheckClock();
}

bool Progress::CheckClock() {
  const double now = NowS();
  if (now >= tools_.node->next_deadline()) tools_.node->Tick(now);
  while (const auto death = tools_.watch->Judge(now)) tools_.verdict->Lost(*death, now);
  tools_.verdict->CheckClock(now);
  CheckMovement(now);
  return Decide();
}

void Progress::CheckMovement(double now) {
  if (!tools_.executor->running()) return;
  if (last_movement_s_ == 0) last_movement_s_ = now;
  if (now - last_movement_s_ >= collective_timeout_s_) tools_.verdict->Fail(TimedOut(), true);
}

Status Progress::TimedOut() const {
  const transport::Neighbours* const neighbours = tools_.connections->neighbours();
  int rank = tools_.executor->waiting_for();
  if (rank < 0 && neighbours != nullptr && neighbours->waiting_for() >= 0)
    rank = neighbours->rank(neighbours->waiting_for());
  const std::string who = rank >= 0 ? "; waiting for rank " + std::to_string(rank) : "";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", collective_timeout_s_);
  return Status(Code::kTimeout, tools_.executor->Describe() + ": no progress for " + seconds + " s on rank " +
                                    std::to_string(tools_.connections->transports().rank) + who +
                                    " (HOROVOD_GLOO_TIMEOUT_SECONDS). Is that process stopped or overloaded?");
}

double Progress::NextDeadline() const {
  double at = std::min({tools_.node->next_deadline(), tools_.verdict->deadline(), tools_.watch->next_deadline()});
  if (tools_.executor->running())
    at = std::min(at, (last_movement_s_ == 0 ? NowS() : last_movement_s_) + collective_timeout_s_);
  return at;
}

void Progress::RanOutOfMemory() noexcept {
  tools_.verdict->Fail(OutOfMemory(), true);
  obeying_.clear();
  tools_.feed->Drop();
}

}  // namespace hvd::engine
