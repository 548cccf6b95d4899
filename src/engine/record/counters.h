// What hvd_describe, hvd_dump and hvd_await_steps tell of the past. Written by the holder of the driver role, read by
// any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "engine/record/finished.h"
#include "engine/record/steps.h"

namespace hvd::engine {

struct Counters {
  struct Volume {
    std::atomic<uint64_t> tensors{0}, bytes{0};
  };

  std::atomic<uint64_t> batches{0}, tensors{0}, sleeps{0};
  std::array<Volume, HVD_RECV + 1> volumes;  // by operation: this rank's own tensors
  Finished finished;
  Steps steps;

  // A tensor of this rank's has been dealt with.
  void Note(OpType type, int process_set, std::string_view name, int64_t bytes) {
    Volume& volume = volumes[static_cast<size_t>(type)];
    volume.tensors.fetch_add(1, std::memory_order_relaxed);
    volume.bytes.fetch_add(static_cast<uint64_t>(bytes), std::memory_order_relaxed);
    finished.Note(type, process_set, name);
    steps.Note(type, process_set, name, bytes);
  }
};

}  // namespace hvd::engine
