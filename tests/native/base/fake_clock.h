// The clock of a device whose moments come when the test says so.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "base/phases.h"
#include "native/harness/harness.h"

namespace hvd::test {

class FakeClock final : public DeviceClock {
 public:
  Result<std::shared_ptr<TimedMoment>> Record(void*) override {
    if (fails) return Status(Code::kInternal, "the device has failed.");
    std::lock_guard<std::mutex> lock(mutex_);
    moments_.push_back(std::make_shared<Moment>());
    return std::shared_ptr<TimedMoment>(moments_.back());
  }
  Status Compare() override {
    ++compared;
    return fails ? Status(Code::kTimeout, "the device stands still.") : Status();
  }
  // The i-th moment has come; at_s < 0: nobody knows when.
  void Come(size_t i, double at_s) {
    std::lock_guard<std::mutex> lock(mutex_);
    moments_[i]->at_s = at_s;
    moments_[i]->reached = true;
  }
  size_t recorded() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return moments_.size();
  }

  std::atomic<bool> fails{false};
  std::atomic<int> compared{0};

 private:
  struct Moment final : TimedMoment {
    bool Reached() const override { return reached; }
    Result<double> TimeS() const override {
      if (at_s < 0) return Status(Code::kInternal, "the device has failed.");
      return at_s.load();
    }
    std::atomic<double> at_s{0};
    std::atomic<bool> reached{false};
  };
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Moment>> moments_;
};

}  // namespace hvd::test
