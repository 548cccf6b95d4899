// Reached: a task that goes on when a moment on the device has come, for what the host must see there.
#pragma once

#include <memory>

#include "backend/cuda/event.h"
#include "base/polled.h"
#include "base/task.h"

namespace hvd::backend::cuda {

// Null: at once.
inline Task Reached(std::shared_ptr<const Event> moment) {
  constexpr double kLivelyS = 0.002;  // a copy of some megabytes; sleeping costs a tenth of a millisecond (docs/gpu.md)
  if (moment == nullptr) co_return Status();
  Status failure;
  co_await Polled(
      [&] {
        bool reached = false;
        failure = moment->Ask(&reached);
        return reached || !failure.ok();
      },
      kLivelyS);
  co_return failure;
}

}  // namespace hvd::backend::cuda
