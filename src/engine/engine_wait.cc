// Who drives: waiting threads and the background thread, how they hand the driver role over, and how they sleep.
//
// Bells (neighbours.h): kAwake while somebody drives; a driver that is about to sleep or leave stores kBlocked
// (something is pending) or kIdle, then looks at its inputs once more, so that no ring is lost.
#include <sched.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>

#include "engine/engine.h"

namespace hvd {
namespace {

// The background thread gives the core away this often before it sleeps: a sleep and a ring cost about as much.
constexpr int kBackgroundYields = 20;
// A waiting thread that found the role taken looks this often before it sleeps.
constexpr int kRoleSpins = 200;
// A waiting thread spins this often, then gives the core away between looks: the rank that it waits for may need it.
// With ranks that share cores that is certain (a long spin made 4 ranks on 2 cores ten times slower); with enough cores
// other processes may be in the way.
constexpr int kSpins = 300, kCrowdedSpins = 50;
// How long until it sleeps.
constexpr double kSpinUs = 200, kCrowdedSpinUs = 500;
// A driver that always finds something to do looks at its descriptors now and then.
constexpr uint64_t kRoundsPerLook = 4096;
// How long an asynchronous submission may wait for the background thread to look at it.
constexpr double kLookAfterS = 100e-6;

}  // namespace

double NowS() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool Engine::TryTakeRole() {
  bool free = false;
  if (!role_.compare_exchange_strong(free, true, std::memory_order_seq_cst)) return false;
  SetBell(BellState::kAwake);
  return true;
}

void Engine::SetBell(BellState state) {
  if (transports_.neighbours) return transports_.neighbours->SetBell(state);
  own_bell_.store(static_cast<uint32_t>(state), std::memory_order_seq_cst);
}

void Engine::RingSelf() {
  if (transports_.neighbours) return transports_.neighbours->RingSelf();
  if (own_bell_.exchange(static_cast<uint32_t>(BellState::kAwake), std::memory_order_seq_cst) ==
      static_cast<uint32_t>(BellState::kAwake))
    return;
  const uint64_t one = 1;
  while (write(doorbell_fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

// For the background thread, which has taken news off a descriptor that a waiting thread may be about to sleep on.
void Engine::NudgeDriver() {
  if (!sockets_) return RingSelf();  // it sleeps on the bell
  const uint64_t one = 1;
  while (write(nudge_fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

// Something was submitted. A thread that will wait drives at once. Otherwise, when nobody drives, this thread passes
// the news on itself and moves what moves without waiting; the background thread looks after the rest a moment later.
// (A context switch for each tensor of a backward pass would cost more than the small tensors themselves.)
void Engine::Kick(bool will_wait) {
  if (will_wait) return;
  if (!TryTakeRole()) return RingSelf();
  if (transports_.neighbours) transports_.neighbours->set_inline_spins(0);
  PassSubmissions();
  ReadLinks();
  Decide();
  LeaveRole(Leaving::kSubmitter);
}

void Engine::Poll() {
  if (!TryTakeRole()) return RingSelf();
  Progress();
  LeaveRole(Leaving::kSubmitter);
}

// Has the background thread look at everything in kLookAfterS, unless it is going to already. Used instead of ringing
// at once by threads that are probably back before then.
void Engine::LookSoon() {
  if (look_armed_.exchange(true, std::memory_order_seq_cst)) return;
  itimerspec when = {};
  when.it_value.tv_nsec = static_cast<long>(kLookAfterS * 1e9);
  timerfd_settime(timer_fd_, 0, &when, nullptr);
}

void Engine::PutDownRole() {
  role_.store(false, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) == 0) return;
  std::lock_guard<std::mutex> lock(wait_mutex_);
  waiters_.notify_all();
}

void Engine::LeaveRole(Leaving who) {
  auto callbacks = std::move(callbacks_);
  callbacks_.clear();
  const bool foreground = who != Leaving::kBackground;
  bool look_soon = foreground && (Busy() || NextDeadline() < background_until_.load(std::memory_order_relaxed));
  if (transports_.neighbours && transports_.neighbours->has_pending_rings()) {
    links_.DropReadRings(transports_.neighbours.get());
    if (!foreground) transports_.neighbours->FlushRings();
    look_soon |= transports_.neighbours->has_pending_rings();
  }
  // With a look ahead, nobody needs to ring this rank at once.
  SetBell(Busy() && !look_soon ? BellState::kBlocked : BellState::kIdle);
  PutDownRole();
  if (look_soon || (foreground && (AnythingReady() || missed_.load(std::memory_order_seq_cst)))) LookSoon();
  RunCallbacks(std::move(callbacks));
}

void Engine::RunCallbacks(std::vector<std::pair<Completion::Callback, Status>> callbacks) {
  for (auto& [callback, status] : callbacks)
    callback.fn(callback.user, static_cast<hvd_status>(status.code()), status.message().c_str());
}

// ------------------------------------------------------------------------------------------------------------------
// waiting threads

bool Engine::Wait(Completion& completion, double timeout_s) {
  if (completion.done()) return true;
  const double deadline = NowS() + timeout_s;
  while (!completion.done()) {
    if (TryTakeRole()) {
      const Woken why = DriveFor(completion, deadline);
      LeaveRole(Leaving::kWaiter);
      if (why != Woken::kProgress) return completion.done();
      continue;
    }
    role_wanted_.fetch_add(1, std::memory_order_seq_cst);
    RingSelf();  // the driver may be asleep while this thread's submission waits
    for (int i = 0; i < kRoleSpins && !completion.done() && role_.load(std::memory_order_relaxed); ++i)
      Neighbours::Pause();
    if (!completion.done() && role_.load(std::memory_order_seq_cst)) {
      std::unique_lock<std::mutex> lock(wait_mutex_);
      asleep_.fetch_add(1, std::memory_order_seq_cst);
      const auto until = std::chrono::steady_clock::time_point(
          std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(deadline)));
      waiters_.wait_until(lock, until, [&] { return completion.done() || !role_.load(std::memory_order_seq_cst); });
      asleep_.fetch_sub(1, std::memory_order_seq_cst);
    }
    role_wanted_.fetch_sub(1, std::memory_order_seq_cst);
    if (!completion.done() && NowS() >= deadline) return false;
  }
  return true;
}

// In the role: until the completion is done, the time is over or a signal arrived. kProgress also when callbacks want
// to run.
Engine::Woken Engine::DriveFor(Completion& completion, double deadline) {
  ++waiting_;
  const bool crowded = Crowded();
  const double spin_s = (spin_us_ >= 0 ? spin_us_ : crowded ? kCrowdedSpinUs : kSpinUs) / 1e6;
  if (transports_.neighbours) transports_.neighbours->set_inline_spins(crowded ? 0 : 64);
  Woken why = Woken::kProgress;
  double spin_until = 0;
  uint64_t rounds = 0;
  for (int idle = 0; !completion.done();) {
    if (++rounds % kRoundsPerLook == 0) Look();
    if (Progress()) {
      idle = 0;
      spin_until = 0;
      if (callbacks_.size() > 0) break;
      continue;
    }
    ++idle;
    if (idle > (crowded ? kCrowdedSpins : kSpins)) sched_yield();
    if (idle % 16 != 0) {
      Neighbours::Pause();
      continue;
    }
    const double now = NowS();
    if (spin_until == 0) spin_until = now + spin_s;
    if (now < spin_until) continue;
    why = SleepInRole(deadline);
    if (why != Woken::kProgress) break;
    idle = 0;
    spin_until = 0;
  }
  --waiting_;
  if (express_) express_->Forget();
  return why;
}

// Without sleeping: has a process died, is a deadline over?
void Engine::Look() {
  HandleNoticed();
  CheckClock();
}

Engine::Woken Engine::SleepInRole(double deadline) {
  if (CheckClock()) return Woken::kProgress;
  if (transports_.neighbours) transports_.neighbours->FlushRings();
  const bool on_bell = transports_.neighbours && !sockets_;
  SetBell(on_bell ? BellState::kWaiting : BellState::kBlocked);
  if (Progress() ||
      any_noticed_.load(std::memory_order_seq_cst)) {  // something came between the last look and the bell
    SetBell(BellState::kAwake);
    Look();
    return Woken::kProgress;
  }
  const double left = std::min(deadline, NextDeadline()) - NowS();
  std::vector<Sleeper::Event> events;
  ++sleeps_;
  const bool undisturbed = on_bell ? transports_.neighbours->SleepOnBell(left) : waiter_sleeper_.Wait(left, &events);
  SetBell(BellState::kAwake);
  Notice(events);
  Look();
  if (!undisturbed) return Woken::kSignal;
  return NowS() >= deadline ? Woken::kTimeout : Woken::kProgress;
}

// What a sleeper saw. A process that is gone stays gone: its descriptor is watched no longer.
void Engine::Notice(const std::vector<Sleeper::Event>& events) {
  for (const Sleeper::Event& e : events) {
    if (e.kind == Sleeper::Kind::kDoorbell) {
      uint64_t count;
      if (read(doorbell_fd_, &count, sizeof count) < 0) continue;  // another thread drained it
    } else if (e.kind == Sleeper::Kind::kNudge) {
      uint64_t count;
      if (read(nudge_fd_, &count, sizeof count) < 0) continue;
    } else if (e.kind == Sleeper::Kind::kTimer) {
      uint64_t count;
      if (read(timer_fd_, &count, sizeof count) < 0) continue;
      look_armed_.store(false, std::memory_order_seq_cst);
    } else if (e.kind == Sleeper::Kind::kLiveness) {
      std::lock_guard<std::mutex> lock(wait_mutex_);
      const int fd = liveness_fd_[e.rank];
      background_sleeper_.Forget(fd);
      waiter_sleeper_.Forget(fd);
      noticed_.push_back(e);
      any_noticed_.store(true, std::memory_order_seq_cst);
    }
  }
}

void Engine::HandleNoticed() {
  if (!any_noticed_.load(std::memory_order_seq_cst)) return;
  std::vector<Sleeper::Event> events;
  {
    std::lock_guard<std::mutex> lock(wait_mutex_);
    events.swap(noticed_);
    any_noticed_.store(false, std::memory_order_seq_cst);
  }
  for (const Sleeper::Event& e : events) {
    Peer& peer = peers_[e.rank];
    if (peer.suspected_at == 0) {
      peer.suspected_at = NowS();
      ++suspects_;
    }
  }
}

// ----------------------------------------------------------------------------------------------------------------
// background thread

void Engine::BackgroundLoop() {
  if (affinity_ >= 0) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(affinity_, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
  }
  std::vector<Sleeper::Event> events;
  while (!stop_.load(std::memory_order_seq_cst)) {
    Notice(events);  // before the role is tried: a ring that comes after this look must not be drained
    // What comes over sockets wakes this thread also when another one drives. Who leaves the role from now on sees
    // that.
    const bool missed = sockets_ && !events.empty();
    if (missed) missed_.store(true, std::memory_order_seq_cst);
    events.clear();
    double until = std::numeric_limits<double>::infinity();
    if (TryTakeRole()) {
      missed_.store(false, std::memory_order_relaxed);
      Look();
      const bool asleep_soon = DriveInBackground();
      until = NextDeadline();
      background_until_.store(until, std::memory_order_relaxed);
      LeaveRole(Leaving::kBackground);
      // A waiting thread that wants the role gets it; should its result be there already, this thread goes on.
      while (role_wanted_.load(std::memory_order_seq_cst) > 0 && !role_.load(std::memory_order_seq_cst)) sched_yield();
      // After the bell: look once more, or what came in between would wait for the next ring.
      if (!asleep_soon || AnythingReady()) continue;
    } else {
      background_until_.store(until, std::memory_order_relaxed);
      if (!role_.load(std::memory_order_seq_cst)) continue;  // who has just left judged by an older deadline
      // A waiting thread drives, and watches the clock; it must see what was noticed, and what was submitted without a
      // ring.
      if (missed || submissions_.any() || any_noticed_.load(std::memory_order_seq_cst)) NudgeDriver();
    }
    background_sleeper_.Wait(until - NowS(), &events);
  }
}

// True: nothing to do now. False: a waiting thread wants the role, callbacks want to run, or the engine stops.
bool Engine::DriveInBackground() {
  if (transports_.neighbours) transports_.neighbours->set_inline_spins(0);
  uint64_t rounds = 0;
  for (int idle = 0;;) {
    if (++rounds % kRoundsPerLook == 0) Look();
    if (stop_.load(std::memory_order_relaxed)) return false;
    if (role_wanted_.load(std::memory_order_relaxed) > 0) return false;
    if (Progress()) {
      idle = 0;
      if (!callbacks_.empty()) return false;
      continue;
    }
    if (!Busy()) return true;
    if (++idle <= kBackgroundYields) {
      sched_yield();
      continue;
    }
    // The last look, with the bell at kBlocked: what is published after it rings.
    if (transports_.neighbours) transports_.neighbours->FlushRings();
    SetBell(BellState::kBlocked);
    if (!Progress()) return true;
    SetBell(BellState::kAwake);
    if (!callbacks_.empty()) return false;
    idle = 0;
  }
}

}  // namespace hvd
