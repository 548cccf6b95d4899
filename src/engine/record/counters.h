// Counters: what hvd_describe, hvd_dump and hvd_await_steps say of the past, and what others read while it happens: the
// words of HVD_COUNTER_..., in memory that the caller may share. Written by the holder of the driver role, but for what
// says that any thread may call it; read by any thread, and by other processes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/record/finished.h"
#include "engine/record/steps.h"

namespace hvd::engine {

class Counters {
 public:
  static constexpr size_t kErrorBytes = 256;

  // words: HVD_COUNTER_WORDS of them; null: its own.
  explicit Counters(uint64_t* words = nullptr);

  // A batch has ended, with so many tensors.
  void CountBatch(size_t tensors) {
    Add(HVD_COUNTER_BATCHES, 1);
    Add(HVD_COUNTER_TENSORS, tensors);
  }
  // A tensor of this rank's has been dealt with.
  void Note(OpType type, int process_set, std::string_view name, int64_t bytes) {
    const int at = HVD_COUNTER_OPERATIONS + 2 * static_cast<int>(type);
    Add(at, 1);
    Add(at + 1, static_cast<uint64_t>(bytes));
    finished.Note(type, process_set, name);
    if (steps.Note(type, process_set, name, bytes)) Add(HVD_COUNTER_STEPS, 1);
  }
  void CountSleep() { Add(HVD_COUNTER_SLEEPS, 1); }
  void CountStall() { Add(HVD_COUNTER_STALLS, 1); }
  // Any thread.
  void CountError(std::string_view text) noexcept;
  void SetInFlight(size_t tensors) { Set(HVD_COUNTER_IN_FLIGHT, tensors); }

  // Batches are under way from now on, the first of them with tensors that waited since then.
  void BatchesBegin(double now, double submitted);
  // None is any more.
  void BatchesEnd(double now);
  bool batches_run() const { return Get(HVD_COUNTER_BATCH_SINCE_NS) != 0; }

  // A thread of the program begins to wait, and has waited. Any thread.
  void BeginWait(double now);
  void EndWait(double now);
  // The holder has waited for other ranks, and for nothing else, while nothing was in flight.
  void WaitedForOthers(double seconds) { Add(HVD_COUNTER_BLOCKED_NS, Ns(seconds)); }

  // Of this engine alone.
  uint64_t Since(int word) const { return Get(word) - before_[word]; }
  std::string LastError() const;

  Finished finished;
  Steps steps;

 private:
  static uint64_t Ns(double seconds) { return seconds > 0 ? static_cast<uint64_t>(seconds * 1e9) : 0; }
  std::atomic_ref<uint64_t> word(int at) const { return std::atomic_ref<uint64_t>(words_[at]); }
  uint64_t Get(int at) const { return word(at).load(std::memory_order_relaxed); }
  void Set(int at, uint64_t value) { word(at).store(value, std::memory_order_relaxed); }
  // There is one writer: an addition that locks the bus would take ten times as long.
  void Add(int at, uint64_t n) { Set(at, Get(at) + n); }
  void AddShared(int at, uint64_t n) { word(at).fetch_add(n, std::memory_order_relaxed); }
  // No later engine counts in this memory.
  bool counts() const { return Get(HVD_COUNTER_ENGINE) == engine_; }
  uint64_t BatchNs(uint64_t now) const;
  void LookAtProcessor(uint64_t now);

  const std::unique_ptr<uint64_t[]> own_;
  uint64_t* const words_;
  uint64_t engine_ = 0;
  std::array<uint64_t, HVD_COUNTER_WORDS> before_{};
  std::atomic<uint64_t> looked_at_processor_{0};  // when
};

// A thread's wait, from here to the end of the block.
class CountedWait {
 public:
  CountedWait(Counters* counters, double now);
  ~CountedWait();
  CountedWait(const CountedWait&) = delete;
  CountedWait& operator=(const CountedWait&) = delete;

 private:
  Counters* const counters_;
};

}  // namespace hvd::engine
