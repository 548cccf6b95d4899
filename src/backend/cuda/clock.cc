#include "backend/cuda/clock.h"

#include <sched.h>

#include <limits>

#include "base/monotonic.h"

namespace hvd::backend::cuda {
namespace {

constexpr double kGoodS = 20e-6;     // of error
constexpr int kTries = 3;            // to reach that; the thread may be taken off its core in between
constexpr double kPatienceS = 0.01;  // a device that answers later than that is not idle, or has failed

}  // namespace

class Clock::Moment final : public TimedMoment {
 public:
  Moment(std::shared_ptr<const Clock> clock, std::shared_ptr<Event> event)
      : clock_(std::move(clock)), event_(std::move(event)) {}
  bool Reached() const override { return event_->Reached(); }
  Result<double> TimeS() const override { return clock_->TimeOf(*event_); }

 private:
  const std::shared_ptr<const Clock> clock_;
  const std::shared_ptr<Event> event_;
};

Result<std::shared_ptr<TimedMoment>> Clock::Record(void* stream) {
  Result<std::shared_ptr<Event>> event = events_->Record(stream);
  HVD_TRY(event.status());
  return std::shared_ptr<TimedMoment>(std::make_shared<Moment>(shared_from_this(), std::move(*event)));
}

Status Clock::Compare() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stream_ == nullptr) {
    Result<std::unique_ptr<Stream>> made = Stream::Make(events_);
    HVD_TRY(made.status());
    stream_ = std::move(*made);
  }
  error_s_ = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTries && error_s_ > kGoodS; ++i) HVD_TRY(CompareOnce());
  return Status();
}

double Clock::error_s() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return error_s_;
}

// Keeps the better one. With the lock.
Status Clock::CompareOnce() {
  const double before = MonotonicS();
  double after = before;
  Result<std::shared_ptr<Event>> event = stream_->Record();
  HVD_TRY(event.status());
  for (bool reached = false; !reached;) {
    HVD_TRY((*event)->Ask(&reached));
    after = MonotonicS();
    if (!reached && after - before > kPatienceS) return Status(Code::kTimeout, "the GPU's clock cannot be read.");
    if (!reached) sched_yield();
  }
  if ((after - before) / 2 >= error_s_) return Status();
  error_s_ = (after - before) / 2;
  compared_at_s_ = before + error_s_;
  compared_ = std::move(*event);
  return Status();
}

// Of the later event the earlier one: the driver gives the time between two as a float, which is exact for short ones.
Result<double> Clock::TimeOf(const Event& moment) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (compared_ == nullptr) return Status(Code::kInternal, "the clocks of host and GPU have not been compared.");
  const Result<double> since = moment.SecondsUntil(*compared_);
  HVD_TRY(since.status());
  return compared_at_s_ - *since;
}

}  // namespace hvd::backend::cuda
