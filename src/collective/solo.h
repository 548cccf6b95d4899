// Every collective over a group of one: no transport, only the arithmetic that the operation still implies (factors,
// copies).
#pragma once

#include "base/task.h"
#include "collective/batch.h"

namespace hvd::collective {

Task SoloCollective(const Group& group, Batch& batch);

}  // namespace hvd::collective
