// How one batch stores, and the clock that judges it; StoreChooser decides.
#pragma once

#include <chrono>
#include <cstddef>

#include "collective/batch.h"
#include "collective/kernels/kernels.h"
#include "collective/stores/chooser.h"

namespace hvd::collective {

// For stores that nobody measures: what the allreduces of this size have learned.
inline StoreMode UnmeasuredStores(const Group& group, size_t bytes) { return group.stores->Learned(bytes); }

// A result in place of its input was in the cache a moment ago: there is nothing to save.
inline StoreMode ResultStores(const std::byte* input, const std::byte* output, StoreMode results) {
  return input == output ? StoreMode::kOrdinary : results;
}

// The mode of a batch for one use, and the clock that judges it.
class StoreTrial {
 public:
  StoreTrial(const Group& group, StoreChooser::Use use, size_t bytes)
      : chooser_(*group.stores), use_(use), bytes_(bytes), mode_(chooser_.Decide(use, bytes)) {}
  StoreMode mode() const { return mode_; }
  // Whether this batch is measured: it may then do what makes the measurement a good one, and costs time.
  bool is_measured() const { return chooser_.IsMeasured(use_, bytes_); }
  // What counts: work on the data, once or in several stretches; not the wait until all members have arrived.
  void Start() { begin_ = Clock::now(); }
  void Pause() { elapsed_ += Clock::now() - begin_; }
  void Stop() {
    Pause();
    chooser_.Record(use_, bytes_, mode_, elapsed_.count());
  }

 private:
  using Clock = std::chrono::steady_clock;
  StoreChooser& chooser_;
  StoreChooser::Use use_;
  size_t bytes_;
  StoreMode mode_;
  Clock::time_point begin_;
  std::chrono::duration<double, std::nano> elapsed_{0};
};

}  // namespace hvd::collective
