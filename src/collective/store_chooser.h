// StoreChooser: ordinary or streaming stores into shared memory? Which is faster depends on whether the two cores share
// a cache, which a virtual machine may change under way (4x for ordinary stores between core complexes), so it is
// measured on the batches themselves: the first ones of a size class try both, the faster mode is kept and compared
// again now and then. Pure: the caller owns the clock. One per group, used by the holder of the driver role; all
// members count the same batches, so that they try the same mode at the same time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/kernels.h"

namespace hvd {

class StoreChooser {
 public:
  enum class Setting { kMeasure = 0, kOrdinary = 1, kStreaming = 2 };
  // What the stores are for; every use is measured for itself.
  enum class Use { kAllreduce, kResident, kAllgather, kAlltoall, kReducescatter };

  explicit StoreChooser(Setting setting) : setting_(setting) {}

  // The mode of the next batch of this size; counts it.
  StoreMode Decide(Use use, size_t bytes);
  // How long the batch that Decide was last asked about took, from the moment all members had arrived.
  void Record(Use use, size_t bytes, StoreMode mode, double elapsed_ns);

  // What the allreduces of this size have learned, without counting a batch: for broadcast, which is one-sided, so that
  // no rank sees what its stores cost the others.
  StoreMode Learned(size_t bytes) const;

  // Smaller batches stay in the caches: always ordinary.
  static constexpr size_t kMeasuredBytes = 256 << 10;
  static constexpr uint32_t kFirstTrials = 12, kLaterTrials = 6, kPeriod = 300;

 private:
  struct Class {
    uint32_t batches = 0;                      // decided so far
    bool settled = false;                      // the first comparison is over
    double best[2] = {0, 0};                   // ns per byte by mode in the running comparison; 0: none yet
    StoreMode chosen = StoreMode::kStreaming;  // never much slower than the other above the small sizes
  };
  static constexpr int kClasses = 64;
  Class& ClassOf(Use use, size_t bytes);
  static uint32_t TrialsOf(const Class& c) { return c.settled ? kLaterTrials : kFirstTrials; }

  Setting setting_;
  std::array<std::array<Class, kClasses>, 5> classes_;  // by use and power of two
};

}  // namespace hvd
