// Devices: what the engine needs of accelerators, whatever moves their bytes: moments, memory, copies.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/device.h"
#include "base/phases.h"
#include "collective/batch.h"

namespace hvd::backend {

// Members submit a tensor when it is going to be computed, not when it is: who needs it may rightly wait for a member
// whose device is busy. So devices are given so many times what the host's ways are.
inline constexpr double kDevicePatience = 20;

class Devices {
 public:
  virtual ~Devices() = default;
  // The one device of this rank.
  virtual Place place() const = 0;
  // The moment when what has been put on `stream` until now is done. Any thread. kUnsupported: the stream is being
  // captured into a graph.
  virtual Result<std::shared_ptr<DeviceEvent>> Mark(void* stream) = 0;
  // Memory on the device, which may be given back by any thread. kResource: there is none.
  virtual Result<std::unique_ptr<collective::Block>> Allocate(size_t bytes) = 0;
  // Memory on the device that holds the neutral value of a reduction. *ready: when it does.
  virtual Result<std::unique_ptr<collective::Block>> Identity(DType dtype, ReduceOp op, size_t elems,
                                                              std::shared_ptr<DeviceEvent>* ready) = 0;
  // Copies on the device, on `stream`, what `from` holds after `when`, and keeps it (where it is not null) until then.
  // Any thread.
  virtual Status Copy(void* to, const void* from, size_t bytes, const std::shared_ptr<DeviceEvent>& when, void* stream,
                      std::unique_ptr<collective::Block> keep) = 0;
  // For traces; null: they have none.
  virtual std::shared_ptr<DeviceClock> clock() const { return nullptr; }
};

}  // namespace hvd::backend
