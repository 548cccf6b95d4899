#include "collective/batch_log.h"

#include <string>

#include "base/log.h"

namespace hvd::collective {

void LogWay(const Batch& batch, const char* way) {
  if (!LogEnabled(LogLevel::kTrace)) return;
  size_t bytes = 0;
  for (const Tensor& t : batch.tensors) bytes += t.elems * SizeOf(batch.dtype);
  std::string text = "batch " + std::to_string(batch.seq) + ": " + NameOf(batch.type);
  if (!batch.tensors.empty()) {
    const size_t count = batch.tensors.size();
    text += " of " + std::to_string(count) + (count == 1 ? " tensor, " : " tensors, ") + std::to_string(bytes) +
            " bytes of " + NameOf(batch.dtype);
  }
  Log(LogLevel::kTrace, text + ", " + way);
}

}  // namespace hvd::collective
