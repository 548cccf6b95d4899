// What a member does with its own data beside the messages of a collective: copy it to the result, multiply it by the
// prescale factor. Long ones yield between turns, like everything under the driver role.
#pragma once

#include "base/task.h"
#include "collective/batch.h"
#include "collective/channels/plan_run.h"

namespace hvd::collective::channels {

Task CopyOwn(std::byte* dst, const std::byte* src, size_t bytes);
struct OwnCopy {
  std::byte* dst;
  const std::byte* src;
  size_t bytes;
};
// Runs to the end; the copies, which touch nothing that the run receives into, are made while bytes are under way.
Task FinishCopying(PlanRun& run, const std::vector<OwnCopy>& copies);
// output = prescale * input, for all tensors; does nothing when the factor is 1. Afterwards the own operand is
// OwnOperand(batch, t).
Task PrescaleOwn(Batch& batch);
inline const std::byte* OwnOperand(const Batch& batch, const Tensor& t) {
  return batch.prescale != 1.0 ? t.output : t.input;
}

// Of a tensor, in its input.
struct Rows {
  size_t first = 0, count = 0;
};
// What this member sends to another, or keeps (to itself).
using RowsTo = Rows (*)(const Tensor& t, int member);
// Sizes, then rows, by pairwise exchange: the rows follow the sizes at once, so that nothing waits for anything but the
// results for their sizes. No memory but the results. Sets result and received_rows. Invariant: a member knows the size
// of a block before it reads it.
Task ExchangeRows(const Group& group, Batch& batch, RowsTo rows_to);

// First extent; a scalar is one row.
inline int64_t RowsOf(const Tensor& t) { return t.shape.empty() ? 1 : t.shape[0]; }
// Places the result of this many rows from the members; kInternal when a peer announced an impossible number.
Status PlaceRows(const Batch& batch, Tensor& t, const std::vector<int64_t>& rows);

}  // namespace hvd::collective::channels
