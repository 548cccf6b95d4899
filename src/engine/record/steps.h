// Steps: counts the training steps of this rank, for a tuner. A step ends where a tensor comes again that has come in
// it already: training reduces the same names over and over. What has a new name each time ends no step, and belongs
// to the one that it falls in. Written by the holder of the driver role, waited for by any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

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

  // One tensor has been dealt with. True: a step has ended before it.
  bool Note(OpType type, int process_set, std::string_view name, int64_t bytes) {
    if (asked_.load(std::memory_order_relaxed) != asks_) Begin();
    const bool ended = ComesAgain(KeyOf(type, process_set, name));
    if (asks_) Tally(ended, bytes);
    return ended;
  }

  // Waits until so many steps have ended. kInProgress: timeout_s is over; kShutdown: there will be no more.
  Status Await(int64_t steps, double timeout_s, Count* out);
  // Wakes who waits, for good.
  void Close();

 private:
  // Names whose places are the same displace one another: a step with more tensors ends where one comes again that was
  // not displaced. Each is looked up in one line of the cache, which costs less than a set of names.
  static constexpr size_t kPlaces = 1 << 12;
  // A condition variable cannot wait without end.
  static constexpr double kLongS = 1e6;

  struct Place {
    uint64_t key = 0;
    uint64_t step = 0;  // in which it came last
  };

  // Two names with one key would end a step early, once in 2^64.
  static uint64_t KeyOf(OpType type, int process_set, std::string_view name) {
    const uint64_t place = static_cast<uint64_t>(process_set) * 31 + static_cast<uint64_t>(type);
    return std::hash<std::string_view>{}(name) ^ (place * 0x9E3779B97F4A7C15u);
  }
  bool ComesAgain(uint64_t key) {
    Place& place = places_[key % kPlaces];
    const bool again = place.key == key && place.step == step_;
    if (again) ++step_;
    place = {key, step_};
    return again;
  }
  void Begin();
  void Tally(bool ended, int64_t bytes);

  std::atomic<bool> asked_{false};
  // ---- the holder's
  std::unique_ptr<Place[]> places_ = std::make_unique<Place[]>(kPlaces);
  uint64_t step_ = 1;  // the one under way
  bool asks_ = false;  // as it was seen last
  int64_t bytes_ = 0;  // of all steps since, and of the one under way
  std::mutex mutex_;   // guards what follows
  std::condition_variable ended_;
  Count count_;
  bool closed_ = false;
};

}  // namespace hvd::engine
