// Role: the driver role, one flag. Its holder moves the whole rank forward; it is not a lock to wait for: a thread that
// does not get it sleeps until its result is there or the role is free. Any thread may call anything here.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "engine/submit/completion.h"
#include "engine/wake/clock.h"
#include "transport/neighbours.h"

namespace hvd::engine {

class Role {
 public:
  bool TryTake() {
    bool free = false;
    return taken_.compare_exchange_strong(free, true, std::memory_order_seq_cst);
  }
  void PutDown() {
    taken_.store(false, std::memory_order_seq_cst);
    WakeWaiters();
  }
  bool taken() const { return taken_.load(std::memory_order_seq_cst); }
  // Do waiting threads want it? The background thread gives it up for them.
  bool wanted() const { return wanted_.load(std::memory_order_seq_cst) > 0; }

  // Those that sleep in Await look again: the role is free, or a result has come.
  void WakeWaiters() {
    if (asleep_.load(std::memory_order_seq_cst) == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    waiters_.notify_all();
  }

  // For a thread that found the role taken: until `awaited` is done, the role is free, or the deadline is over. ring():
  // wakes the holder, who may be asleep while this thread's submission waits.
  template <class Ring>
  void Await(const Completion& awaited, double deadline, Ring ring) {
    wanted_.fetch_add(1, std::memory_order_seq_cst);
    ring();
    for (int i = 0; i < kSpins && !awaited.done() && taken_.load(std::memory_order_relaxed); ++i)
      transport::Neighbours::Pause();
    if (!awaited.done() && taken()) Sleep(awaited, deadline);
    wanted_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  // So often a thread looks before it sleeps.
  static constexpr int kSpins = 200;
  // A condition variable cannot wait without end; who does looks again after this.
  static constexpr double kLongS = 1e6;

  void Sleep(const Completion& awaited, double deadline) {
    using Clock = std::chrono::steady_clock;
    const std::chrono::duration<double> until(std::min(NowS() + kLongS, deadline));
    std::unique_lock<std::mutex> lock(mutex_);
    asleep_.fetch_add(1, std::memory_order_seq_cst);
    waiters_.wait_until(lock, Clock::time_point(std::chrono::duration_cast<Clock::duration>(until)),
                        [&] { return awaited.done() || !taken(); });
    asleep_.fetch_sub(1, std::memory_order_seq_cst);
  }

  std::atomic<bool> taken_{false};
  std::atomic<int> wanted_{0};  // threads in Await
  std::mutex mutex_;            // guards waiters_ against lost notifications
  std::condition_variable waiters_;
  std::atomic<int> asleep_{0};  // how many are in it
};

}  // namespace hvd::engine
