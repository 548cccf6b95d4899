// Steps: counts the training steps of this rank, for a tuner. A step ends where a tensor comes again that has come in
// it already: training reduces the same names over and over. What has a new name each time ends no step, and belongs
// to the one that it falls in. Nothing is counted before somebody has asked. Written by the holder of the driver role,
// waited for by any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_set>

#include "base/dtype.h"
#include "base/status.h"

namespace hvd::engine {

class Steps {
 public:
  // Of all steps that have ended since somebody asked first.
  struct Count {
    int64_t steps = 0;
    int64_t bytes = 0;  // of this rank's tensors in them
    double at_s = 0;    // when the last of them ended, on the steady clock
  };

  // One tensor has been dealt with.
  void Note(OpType type, int process_set, std::string_view name, int64_t bytes) {
    if (asked_.load(std::memory_order_relaxed)) NoteAt(type, process_set, name, bytes);
  }

  // Waits until so many steps have ended. kInProgress: timeout_s is over; kShutdown: there will be no more.
  Status Await(int64_t steps, double timeout_s, Count* out);
  // Wakes who waits, for good.
  void Close();

 private:
  // So many different names, with none that came again, are no step: they are forgotten.
  static constexpr size_t kMostNames = 1 << 16;
  // A condition variable cannot wait without end.
  static constexpr double kLongS = 1e6;

  void NoteAt(OpType type, int process_set, std::string_view name, int64_t bytes);

  std::atomic<bool> asked_{false};
  std::unordered_set<uint64_t> names_;  // of the step under way; the holder's
  int64_t bytes_ = 0;                   // of all steps and the one under way; the holder's
  std::mutex mutex_;                    // guards what follows
  std::condition_variable ended_;
  Count count_;
  bool closed_ = false;
};

}  // namespace hvd::engine
