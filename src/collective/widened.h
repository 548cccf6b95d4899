// Sums and products of 8-bit floats between hosts, where every hop rounds to the batch's type: they travel as bfloat16,
// which holds all of these numbers and what they soon add up to beyond their range, and are rounded to 8 bits once, at
// the end. That is twice the bytes, and memory for a copy.
#pragma once

#include "base/task.h"
#include "collective/batch.h"

namespace hvd::collective {

// Whether this batch is better so than in its own type, if it is reduced in several steps.
bool SuffersFromSteps(const Batch& batch);

// Runs `reduce`, an allreduce or a reducescatter, on a batch of bfloat16 in the place of this one.
Task Widened(const Group& group, Batch& batch, Task (*reduce)(const Group&, Batch&));

}  // namespace hvd::collective
