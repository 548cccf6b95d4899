// What hvd_describe, hvd_dump and hvd_await_steps tell of the past. Written by the holder of the driver role, read by
// any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/record/finished.h"
#include "engine/record/steps.h"

namespace hvd::engine {

struct Counters {
  std::atomic<uint64_t> batches{0}, tensors{0}, sleeps{0};
  Finished finished;
  Steps steps;

  // A tensor of this rank's has been dealt with.
  void Note(OpType type, int process_set, std::string_view name, int64_t bytes) {
    finished.Note(type, process_set, name);
    steps.Note(type, process_set, name, bytes);
  }
};

}  // namespace hvd::engine
