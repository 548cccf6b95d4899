// Flow: how the tensors of a batch come to the host's memory and leave it again while the batch runs, from the first
// byte of the first tensor to the last of the last, laid end to end. A collective that works in this order waits for
// what it is about to read and reports what it has finished with; the bytes are moved concurrently.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "base/task.h"

namespace hvd::collective {

class Flow {
 public:
  virtual ~Flow() = default;
  // Ends when the first `bytes` of the inputs are there.
  virtual Task Arrived(size_t bytes) = 0;
  // The first `bytes` of the outputs are there, and nobody reads these bytes of the inputs any more.
  virtual Status Left(size_t bytes) = 0;
};

}  // namespace hvd::collective
