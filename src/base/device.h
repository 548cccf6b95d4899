// Where a tensor lies, and a moment in what a device does: what everybody but the backends need to know of
// accelerators.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace hvd {

// Where a tensor lies: in the memory of the host, or n: on CUDA device n - 1. As in hvd_op.
using Place = int32_t;
inline constexpr Place kOnHost = 0;

// A moment in the work of a stream, which comes when everything before it is done. Any thread.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // What is put on `stream` from now on begins after this moment. The host does not wait. `stream` is one of the core's
  // own: whether it is being captured is not asked.
  virtual Status HoldBack(void* stream) const = 0;
  // The same for a stream of the program's. kUnsupported: it is being captured into a graph.
  virtual Status HoldBackProgram(void* stream) const { return HoldBack(stream); }
  // Whether it has come.
  virtual bool Reached() const = 0;
};

}  // namespace hvd
