// Adasum: adds gradients that point in different directions, averages those that point in the same one. Maleki et al.
// 2020, "Scaling distributed training with adaptive summation". Over channels, so on one host through the byte rings.
// Chosen by the host backend.
#pragma once

#include "base/task.h"
#include "collective/batch.h"

namespace hvd::collective::channels {

// Allreduce with a' = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b as the operation of pairs, per tensor of the batch.
// The number of members must be a power of two and the type a floating-point one, else kUnsupported. group.channels
// must connect all members. output = postscale * Adasum of prescale * inputs.
Task AdasumAllreduce(const Group& group, Batch& batch);

}  // namespace hvd::collective::channels
