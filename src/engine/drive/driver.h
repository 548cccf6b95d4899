// Driver: how a thread takes the driver role, works in it and puts it down. The holder of the role moves the whole rank
// forward (Progress). A thread that waits for a result takes the role (waiter.h); the background thread takes it only
// while there is work that nobody waits for (background.h). Any thread may call what stands under "any thread"; the
// rest is for the holder.
#pragma once

#include <atomic>
#include <new>

#include "engine/drive/progress.h"

namespace hvd::engine {

class Driver {
 public:
  struct Tools {
    Role* role;
    Waker* waker;
    Watch* watch;
    Connections* connections;
    Arrivals* arrivals;
    Progress* progress;
  };
  enum class Leaving { kForeground, kBackground };

  explicit Driver(const Tools& tools) : tools_(tools) {}
  const Tools& tools() const { return tools_; }  // for those who drive

  // ---- any thread
  bool TryTakeRole() {
    if (!tools_.role->TryTake()) return false;
    tools_.waker->SetBell(transport::BellState::kAwake);
    return true;
  }
  // Something was submitted by a thread that will not wait for it.
  void Kick();
  // One look at what can move on.
  void Poll();
  // What a sleeper saw.
  void Notice(const Waker::Events& events);

  // ---- the holder of the role
  // Does the work. Without memory for it the engine fails.
  template <class F>
  void InRole(F work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      tools_.progress->RanOutOfMemory();
    }
  }
  // Also has the background thread look after what is under way, and runs the callbacks that are due.
  void LeaveRole(Leaving who);
  // For a thread that has changed nothing and is back at once.
  void PutDownRole() {
    tools_.waker->SetBell(transport::BellState::kIdle);
    tools_.role->PutDown();
  }

  // ---- the background thread: what those who leave the role must know of it
  void SetWakesAt(double time) { background_until_.store(time, std::memory_order_seq_cst); }
  void SetMissed() { missed_.store(true, std::memory_order_seq_cst); }
  void ClearMissed() { missed_.store(false, std::memory_order_relaxed); }

 private:
  static void Run(const Completion::Due& due);

  const Tools tools_;
  std::atomic<double> background_until_{0};  // the background thread wakes by itself then
  std::atomic<bool> missed_{false};          // it saw something, but had not the role
};

}  // namespace hvd::engine
