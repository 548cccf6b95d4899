// Collectives described by a text, as functions that XLA has compiled hold them: read, then run to their end on the
// calling thread. Used by the custom calls of TensorFlow's XLA and of JAX; it knows nothing of either.
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

class DescribedCall {
 public:
  // False: not such a text.
  bool Parse(std::string_view text);

  // The tensors of all submissions, in order; input and output are empty.
  const std::vector<hvd_op>& ops() const { return ops_; }
  // What the result of a tensor was promised to take.
  int64_t result_bytes(size_t i) const { return result_bytes_[i]; }

  // Submits everything, then waits for everything: no tensor is in use afterwards. Collective. `in` and `out` hold an
  // address per tensor; equal ones mean in place. The first failure, and why.
  hvd_status Run(const void* const* in, void* const* out, std::string* why);

 private:
  bool ParseTensor(Words* words);
  hvd_status Start(size_t first, size_t n, hvd_handle* handle) const;
  hvd_status TakeResults(hvd_handle handle, size_t first, size_t n, void* const* out, std::string* why) const;

  std::vector<hvd_op> ops_;
  std::vector<std::string> names_;
  std::vector<int64_t> extents_;
  std::vector<int64_t> result_bytes_;
  std::vector<size_t> submissions_;  // how many tensors each has
};

}  // namespace hvd::frameworks
