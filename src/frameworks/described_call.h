// Collectives described by a text, as functions that XLA has compiled hold them: read, then run on the calling thread.
// Used by the custom calls of TensorFlow's XLA and of JAX; it knows nothing of either.
//
// The text is words (python/horovod/_core/operations/described_call.py writes it): for each submission its own, then
// those of its tensors.
//   TYPE PROCESS_SET REDUCE_OP ROOT PRESCALE POSTSCALE TENSORS
//   NAME DTYPE RESULT_BYTES DIMENSIONS EXTENT...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "horovod/horovod.h"

namespace hvd::frameworks {

class Words;

// Where the tensors of a call lie, and on a device the stream that makes them: as hvd_op has it.
struct Where {
  int32_t place = 0;
  void* stream = nullptr;
};

// An operation that may put its result where its tensor lies.
inline bool WorksInPlace(const hvd_op& op) { return op.type == HVD_ALLREDUCE || op.type == HVD_BROADCAST; }

class DescribedCall {
 public:
  // False: not such a text.
  bool Parse(std::string_view text);

  // The tensors of all submissions, in order; input and output are empty.
  const std::vector<hvd_op>& ops() const { return ops_; }
  // What the result of a tensor was promised to take.
  int64_t result_bytes(size_t i) const { return result_bytes_[i]; }

  // Submits everything, then waits for everything: no tensor is in use afterwards. Or, on a device, everything is on
  // its way, and what is put on the stream from now on begins behind it; the host waits for no device. Collective. `in`
  // and `out` hold an address per tensor; equal ones mean in place (see WorksInPlace). The first failure, and why.
  hvd_status Run(const void* const* in, void* const* out, const Where& where, std::string* why);

 private:
  bool ParseTensor(Words* words);
  hvd_status Start(size_t first, size_t n, hvd_handle* handle) const;
  hvd_status CheckResults(hvd_handle handle, size_t first, size_t n, std::string* why) const;

  std::vector<hvd_op> ops_;
  std::vector<std::string> names_;
  std::vector<int64_t> extents_;
  std::vector<int64_t> result_bytes_;
  std::vector<size_t> submissions_;  // how many tensors each has
};

}  // namespace hvd::frameworks
