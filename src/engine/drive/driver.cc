#include "engine/drive/driver.h"

#include <limits>

namespace hvd::engine {

// When nobody drives, this thread passes the news on itself and moves what moves without waiting; the background thread
// looks after the rest a moment later. (A context switch for each tensor of a backward pass would cost more than the
// small tensors themselves.)
void Driver::Kick() {
  if (!TryTakeRole()) return tools_.waker->RingSelf();
  tools_.connections->set_inline_spins(0);
  InRole([this] { tools_.progress->Announce(); });
  LeaveRole(Leaving::kForeground);
}

void Driver::Poll() {
  if (!TryTakeRole()) return tools_.waker->RingSelf();
  InRole([this] { tools_.progress->Step(); });
  LeaveRole(Leaving::kForeground);
}

void Driver::Notice(const Waker::Events& events) {
  for (const Sleeper::Event& e : events) {
    if (e.kind == Sleeper::Kind::kLiveness) tools_.watch->NoticeGone(e.rank);
    tools_.waker->Drain(e);
  }
}

void Driver::LeaveRole(Leaving who) {
  const bool foreground = who == Leaving::kForeground;
  Progress& progress = *tools_.progress;
  // A thread that has got its result is probably back soon, and hushes the sockets again.
  const bool stays_hushed = foreground && tools_.waker->hushed() && !progress.Busy();
  if (!stays_hushed && tools_.waker->Hear()) InRole([&] { progress.Announce(); });
  const Completion::Due due = tools_.arrivals->TakeDue();
  const double deadline = foreground ? progress.NextDeadline() : std::numeric_limits<double>::infinity();
  const auto background_oversleeps = [&] { return deadline < background_until_.load(std::memory_order_seq_cst); };
  bool look_soon = (foreground && progress.Busy()) || background_oversleeps();
  if (transport::Neighbours* const neighbours = tools_.connections->neighbours();
      neighbours != nullptr && neighbours->has_pending_rings()) {
    tools_.connections->links().DropReadRings(neighbours);
    if (!foreground) neighbours->FlushRings();
    look_soon |= neighbours->has_pending_rings();
  }
  // With a look ahead, nobody needs to ring this rank at once.
  tools_.waker->SetBell(progress.Busy() && !look_soon ? transport::BellState::kBlocked : transport::BellState::kIdle);
  tools_.role->PutDown();
  // The background thread says when it wakes, and then looks whether the role is taken: one of the two sees the other.
  if (look_soon || background_oversleeps() ||
      (foreground && (progress.AnythingReady() || missed_.load(std::memory_order_seq_cst))))
    tools_.waker->LookSoon();
  else if (stays_hushed)
    tools_.waker->LookLater();
  Run(due);
}

void Driver::Run(const Completion::Due& due) {
  for (const auto& [callbacks, status] : due) {
    for (const Completion::Callback& c : callbacks)
      c.fn(c.user, static_cast<hvd_status>(status.code()), status.message().c_str());
  }
}

}  // namespace hvd::engine
