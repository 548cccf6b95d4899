#include "engine/record/steps.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "engine/wake/clock.h"

namespace hvd::engine {

void Steps::NoteAt(OpType type, int process_set, std::string_view name, int64_t bytes) {
  // Two names with one hash would end a step early, once in 2^64.
  const uint64_t place = static_cast<uint64_t>(process_set) * 31 + static_cast<uint64_t>(type);
  const uint64_t key = std::hash<std::string_view>{}(name) ^ (place * 0x9E3779B97F4A7C15u);
  if (!names_.insert(key).second) {
    names_.clear();
    names_.insert(key);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++count_.steps;
      count_.bytes = bytes_;
      count_.at_s = NowS();
    }
    ended_.notify_all();
  } else if (names_.size() > kMostNames) {
    names_.clear();
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
