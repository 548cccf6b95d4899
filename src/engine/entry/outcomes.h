// Outcomes: what the owner of a done handle can have of its results. Any thread, but for one handle one at a time.
#pragma once

#include "backend/devices.h"
#include "engine/submit/completion.h"

namespace hvd::engine {

// How it ended; kInProgress: it has not.
Status StateOf(const Completion& completion);
// The result `index` of a done submission.
Status OutcomeOf(Completion& completion, int index, Outcome** out);
// Whether its owner still needs a successful submission: to take results of the core's memory, or to order by them.
bool MustBeKept(const Completion& completion);

// See hvd_take_result.
Status TakeResult(Completion& completion, int index, hvd_result* out);
// See hvd_order.
Status Order(const Completion& completion, void* stream);
// See hvd_describe_result.
Status DescribeResult(Completion& completion, int index, hvd_result* out);
// Before its owner lets go of a done submission, and may use the memory of its tensors again: the streams that they
// came from are ordered behind the device.
Status LetGo(const Completion& completion);
// See hvd_copy_result. devices: null if this rank uses none.
Status CopyResult(Completion& completion, int index, backend::Devices* devices, void* to, int64_t bytes, void* stream);

}  // namespace hvd::engine
