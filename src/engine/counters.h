// What hvd_describe and hvd_dump tell of the past. Written by the holder of the driver role, read by any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/finished.h"

namespace hvd::engine {

struct Counters {
  std::atomic<uint64_t> batches{0}, tensors{0}, sleeps{0};
  Finished finished;
};

}  // namespace hvd::engine
