#include "engine/drive/waiter.h"

#include <sched.h>

#include <algorithm>

namespace hvd::engine {
namespace {

// A waiting thread spins this often, then gives the core away between looks: the rank that it waits for may need it.
// With ranks that share cores that is certain (a long spin made 4 ranks on 2 cores ten times slower); with enough cores
// other processes may be in the way. Between hosts a look costs system calls, as long as a hundred looks at memory:
// with 300 of them, two ranks that the kernel had put on one core took 1,300 us for what takes 50 on two.
constexpr int kSpins = 300, kCrowdedSpins = 50, kFarSpins = 16;
// How long until it sleeps.
constexpr double kSpinUs = 200, kCrowdedSpinUs = 500;
// Of a step of a collective, while a waiting thread has a core of its own.
constexpr int kInlineSpins = 64;
// So often a driver that always finds something to do looks whether its time is over.
constexpr uint64_t kRoundsPerClock = 64;

}  // namespace

bool Waiter::Wait(Completion& completion, double timeout_s) {
  if (completion.done()) return true;
  const double now = NowS(), deadline = now + timeout_s;
  const CountedWait counted(counters_, now);
  while (!completion.done()) {
    if (driver_->TryTakeRole()) {
      Woken why = Woken::kProgress;
      tools_.progress->set_someone_waits(true);
      driver_->InRole([&] { why = DriveFor(completion, deadline); });
      tools_.progress->set_someone_waits(false);
      driver_->LeaveRole(Driver::Leaving::kForeground);
      if (why != Woken::kProgress) return completion.done();
      continue;
    }
    tools_.role->Await(completion, deadline, [this] { tools_.waker->RingSelf(); });
    if (!completion.done() && NowS() >= deadline) return false;
  }
  return true;
}

// In the role: until the completion is done, the time is over or a signal arrived. kProgress also when callbacks want
// to run.
Waiter::Woken Waiter::DriveFor(Completion& completion, double deadline) {
  const bool crowded = tools_.connections->crowded();
  const double spin_s = (spin_us_ >= 0 ? spin_us_ : crowded ? kCrowdedSpinUs : kSpinUs) / 1e6;
  tools_.connections->set_inline_spins(crowded ? 0 : kInlineSpins);
  const int near_spins = crowded ? kCrowdedSpins : kSpins;
  const int spins = tools_.connections->one_host() ? near_spins : kFarSpins;
  tools_.waker->Hush();
  if (crowded && spread_ != nullptr) spread_->BeforeWait();
  Woken why = Woken::kProgress;
  double spin_until = 0;
  uint64_t rounds = 0;
  for (int idle = 0; !completion.done();) {
    if (++rounds % Progress::kRoundsPerLook == 0) tools_.progress->Look();
    if (rounds % kRoundsPerClock == 0 && NowS() >= deadline) {
      why = Woken::kTimeout;
      break;
    }
    if (tools_.progress->Step()) {
      idle = 0;
      spin_until = 0;
      if (tools_.arrivals->any_due()) break;
      continue;
    }
    ++idle;
    if (idle > spins) sched_yield();
    if (idle % 16 != 0) {
      transport::Neighbours::Pause();
      continue;
    }
    const double now = NowS();
    if (spin_until == 0) spin_until = now + spin_s;
    if (now < spin_until || tools_.progress->must_look_at_once()) continue;
    why = SleepInRole(deadline);
    if (why != Woken::kProgress) break;
    if (tools_.progress->must_look_again()) continue;  // a look between two pauses; to spin again would be no pause
    idle = 0;
    spin_until = 0;
  }
  if (express_ != nullptr) express_->Forget();
  return why;
}

Waiter::Woken Waiter::SleepInRole(double deadline) {
  Progress& progress = *tools_.progress;
  if (progress.CheckClock()) return Woken::kProgress;
  tools_.connections->FlushRings();
  tools_.waker->AnnounceSleep();
  if (progress.Step() || tools_.watch->any_noticed()) {  // something came between the last look and the bell
    tools_.waker->SetBell(transport::BellState::kAwake);
    progress.Look();
    return Woken::kProgress;
  }
  Waker::Events events;
  counters_->CountSleep();
  const bool undisturbed = tools_.waker->Sleep(std::min(deadline, progress.NextDeadline()) - NowS(), &events);
  tools_.waker->SetBell(transport::BellState::kAwake);
  driver_->Notice(events);
  progress.Look();
  if (!undisturbed) return Woken::kSignal;
  return NowS() >= deadline ? Woken::kTimeout : Woken::kProgress;
}

}  // namespace hvd::engine
