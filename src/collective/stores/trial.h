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
  void Start() { begin_ = std::chrono::steady_clock::now(); }  // all members have arrived
  void Stop() {
    if (bytes_ < StoreChooser::kMeasuredBytes) return;
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - begin_;
    chooser_.Record(use_, bytes_, mode_, elapsed.count());
  }

 private:
  StoreChooser& chooser_;
  StoreChooser::Use use_;
  size_t bytes_;
  StoreMode mode_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace hvd::collective
