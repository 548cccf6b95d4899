// What hvd_describe counts. Written by the holder of the driver role, read by any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace hvd::engine {

struct Counters {
  std::atomic<uint64_t> batches{0}, tensors{0}, sleeps{0};
};

}  // namespace hvd::engine
