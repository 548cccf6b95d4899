// What a batch is and the way it goes, for logs at trace level.
#pragma once

#include "collective/batch.h"

namespace hvd::collective {

// Costs one load when nobody listens.
void LogWay(const Batch& batch, const char* way);

}  // namespace hvd::collective
