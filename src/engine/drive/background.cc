#include "engine/drive/background.h"

#include <sched.h>

#include <limits>

#include "base/thread.h"

namespace hvd::engine {
namespace {

// The background thread gives the core away this often before it sleeps: a sleep and a ring cost about as much.
constexpr int kYields = 20;

void BindTo(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

}  // namespace

Status Background::Start(int affinity) {
  Result<std::thread> thread = StartThread("the engine's thread", [this, affinity] {
    if (affinity >= 0) BindTo(affinity);
    Loop();
  });
  HVD_TRY(thread.status());
  thread_ = std::move(*thread);
  return Status();
}

void Background::Stop() {
  stop_.store(true, std::memory_order_seq_cst);
  tools_.waker->RingBackground();
  thread_.join();
}

void Background::Loop() {
  Waker::Events events;
  events.reserve(Sleeper::kMostEvents);
  while (!stop_.load(std::memory_order_seq_cst)) {
    const bool missed = tools_.waker->watches_sockets() && tools_.waker->IsNews(events);
    driver_->Notice(events);  // before the role is tried: a ring that comes after this look must not be drained
    // What comes over sockets wakes this thread also when another one drives. A thread that leaves the role from now on
    // sees that.
    if (missed) driver_->SetMissed();
    events.clear();
    double until = std::numeric_limits<double>::infinity();
    if (driver_->TryTakeRole()) {
      driver_->ClearMissed();
      bool idle = false;
      until = DriveInRole(&idle);
      // A waiting thread that wants the role gets it; should its result be there already, this thread goes on.
      while (tools_.role->wanted() && !tools_.role->taken()) sched_yield();
      // After the bell: look once more, or what came in between would wait for the next ring.
      if (!idle || tools_.progress->AnythingReady()) continue;
    } else {
      driver_->SetWakesAt(until);
      if (!tools_.role->taken()) continue;  // who has just left judged by an older deadline
      // A waiting thread drives, and watches the clock; it must see what was noticed, and what was submitted without a
      // ring.
      if (missed || tools_.progress->AnythingSubmitted() || tools_.watch->any_noticed()) tools_.waker->NudgeDriver();
    }
    tools_.waker->SleepInBackground(until - NowS(), &events);
  }
}

// Until there is nothing to do (*idle) or somebody else wants to. Returns when this thread must look again.
double Background::DriveInRole(bool* idle) {
  driver_->InRole([&] {
    if (!tools_.waker->Hear()) tools_.waker->TakeSocketNews();
    tools_.progress->Look();
    *idle = Drive();
  });
  const double until = tools_.progress->NextDeadline();
  driver_->SetWakesAt(until);
  driver_->LeaveRole(Driver::Leaving::kBackground);
  return until;
}

// True: nothing to do now. False: a waiting thread wants the role, callbacks want to run, or the engine stops.
bool Background::Drive() {
  Progress& progress = *tools_.progress;
  tools_.connections->set_inline_spins(0);
  uint64_t rounds = 0;
  for (int idle = 0;;) {
    if (++rounds % Progress::kRoundsPerLook == 0) progress.Look();
    if (stop_.load(std::memory_order_relaxed)) return false;
    if (tools_.role->wanted()) return false;
    if (progress.Step()) {
      idle = 0;
      if (tools_.arrivals->any_due()) return false;
      continue;
    }
    if (!progress.Busy()) return true;
    if (++idle <= kYields || progress.must_look_at_once()) {
      sched_yield();
      continue;
    }
    // The last look, with the bell at kBlocked: what is published after it rings.
    tools_.connections->FlushRings();
    tools_.waker->SetBell(transport::BellState::kBlocked);
    if (!progress.Step()) return true;
    tools_.waker->SetBell(transport::BellState::kAwake);
    if (tools_.arrivals->any_due()) return false;
    idle = 0;
  }
}

}  // namespace hvd::engine
