// StoreChooser: ordinary or streaming stores? Into shared memory, which is faster depends on whether the two cores
// share a cache, which a virtual machine may change under way (4x for ordinary stores between core complexes). Into
// large results that are not the inputs, streaming saves fetching lines only to overwrite them (a fifth of the time of
// 100 MB) unless the pages are fresh, when it costs half as much again. So both are measured on the batches themselves:
// the first ones of a size class try both, the faster mode is kept and compared again now and then. Pure: the caller
// owns the clock. One per group, used by the holder of the driver role.
//
// Each member decides for itself. Where all count the same batches, they try the same mode at the same time; they do
// not where a batch is not alike on all of them: parts of different sizes in an allgather or alltoall, results in place
// of their inputs on some, tensors that lie in the resident heap on some. Then one member measures while another tries
// the other mode, and may keep the slower one until the next comparison, and nothing worse.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/kernels/kernels.h"

namespace hvd::collective {

using kernels::StoreMode;

class StoreChooser {
 public:
  enum class Setting { kMeasure = 0, kOrdinary = 1, kStreaming = 2 };
  // What the stores are for; every use is measured for itself. kAllreduce to kBroadcast: shared memory.
  enum class Use {
    kAllreduce,
    kResident,
    kAllgather,
    kAlltoall,
    kReducescatter,
    kBroadcast,
    kAllreduceResults,
    kAllgatherResults,
    kAlltoallResults
  };

  // results_from: the smallest results, of this member, that are measured.
  explicit StoreChooser(Setting setting, size_t results_from = kMeasuredResults);

  // The mode of the next batch of this size; counts it.
  StoreMode Decide(Use use, size_t bytes);
  // Whether the batch that Decide was last asked about is one of a comparison.
  bool IsMeasured(Use use, size_t bytes) const;
  // How long that batch took, from the moment all members had arrived.
  void Record(Use use, size_t bytes, StoreMode mode, double elapsed_ns);

  // What the allreduces of this size have learned, without counting a batch: for what nobody measures.
  StoreMode Learned(size_t bytes) const;

  // Smaller batches take too little time to compare: always ordinary.
  static constexpr size_t kMeasuredBytes = 32 << 10;
  // From here on streaming stores are not far from the best anywhere: for what nobody has measured.
  static constexpr size_t kStreamedUnmeasured = 256 << 10;
  // Of all members together, which share the last cache. Less is still there when it is read next, which this does not
  // measure: always ordinary.
  static constexpr size_t kMeasuredResults = 32 << 20;
  static constexpr uint32_t kFirstTrials = 12, kLaterTrials = 6, kPeriod = 300;

 private:
  struct Class {
    uint32_t batches = 0;     // decided so far
    bool settled = false;     // the first comparison is over
    double best[2] = {0, 0};  // ns per byte by mode in the running comparison; 0: none yet
    StoreMode chosen = StoreMode::kOrdinary;
  };
  static constexpr int kClasses = 64, kUses = 9;
  Class& ClassOf(Use use, size_t bytes);
  const Class& ClassOf(Use use, size_t bytes) const;
  static uint32_t TrialsOf(const Class& c) { return c.settled ? kLaterTrials : kFirstTrials; }
  // Of the last batch decided, within its period.
  static uint32_t PlaceOf(const Class& c, Use use);
  size_t MeasuredFrom(Use use) const;

  Setting setting_;
  size_t results_from_;
  std::array<std::array<Class, kClasses>, kUses> classes_;  // by use and power of two
};

}  // namespace hvd::collective
