#include "engine/record/steps.h"

#include <algorithm>
#include <chrono>

#include "engine/wake/clock.h"

namespace hvd::engine {

// Somebody asks for the first time: what they are told of begins here.
void Steps::Begin() {
  asks_ = true;
  ++step_;
}

void Steps::Tally(bool ended, int64_t bytes) {
  if (ended) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++count_.steps;
      count_.bytes = bytes_;
      count_.at_s = NowS();
    }
    ended_.notify_all();
  }
  bytes_ += bytes;
}

Status Steps::Await(int64_t steps, double timeout_s, Count* out) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> until(NowS() + std::min(timeout_s, kLongS));
  std::unique_lock<std::mutex> lock(mutex_);
  asked_.store(true, std::memory_order_relaxed);
  ended_.wait_until(lock, Clock::time_point(std::chrono::duration_cast<Clock::duration>(until)),
                    [&] { return closed_ || count_.steps >= steps; });
  *out = count_;
  if (count_.steps >= steps) return Status();
  if (closed_) return Status(Code::kShutdown, "the engine has shut down.");
  return Status(Code::kInProgress, "fewer steps have ended.");
}

void Steps::Close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  ended_.notify_all();
}

}  // namespace hvd::engine
