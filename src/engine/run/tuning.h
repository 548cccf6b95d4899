// Tuning: the parameters in force on this rank. The holder of the driver role changes them, where the log says so; any
// thread asks.
#pragma once

#include <mutex>

#include "negotiation/values/parameters.h"

namespace hvd::engine {

class Tuning {
 public:
  explicit Tuning(const negotiation::Parameters& at_first) : now_(at_first) {}

  negotiation::Parameters now() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return now_;
  }
  void Change(const negotiation::Parameters& to) {
    std::lock_guard<std::mutex> lock(mutex_);
    now_ = to;
  }

 private:
  mutable std::mutex mutex_;  // guards now_
  negotiation::Parameters now_;
};

}  // namespace hvd::engine
