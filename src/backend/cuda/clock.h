// Clock: when things happened on the GPU, by events with timing, and on which moment of the host's clock that was.
#pragma once

#include <memory>
#include <mutex>

#include "backend/cuda/stream.h"
#include "base/phases.h"

namespace hvd::backend::cuda {

// Compare records an event on an idle stream of its own, between two looks at the host's clock, and takes it to have
// come in the middle: the error is half of what lies between them, about 10 us and written to error_s(). What a moment
// adds is the resolution of the driver, half a microsecond, and what the two clocks run apart since the moment: some
// millionths of that time.
class Clock final : public DeviceClock, public std::enable_shared_from_this<Clock> {
 public:
  explicit Clock(std::shared_ptr<const Context> context)
      : events_(std::make_shared<EventPool>(std::move(context), EventPool::kTimed)) {}

  Result<std::shared_ptr<TimedMoment>> Record(void* stream) override;
  Status Compare() override;
  // At most, of the last comparison.
  double error_s() const;

 private:
  class Moment;
  Status CompareOnce();
  Result<double> TimeOf(const Event& moment) const;

  const std::shared_ptr<EventPool> events_;
  mutable std::mutex mutex_;        // guards what follows
  std::unique_ptr<Stream> stream_;  // of the comparisons; made with the first one
  std::shared_ptr<Event> compared_;
  double compared_at_s_ = 0, error_s_ = 0;
};

}  // namespace hvd::backend::cuda
