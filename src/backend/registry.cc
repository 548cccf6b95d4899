#include "backend/backend.h"

namespace hvd::backend {

Result<Backend*> Registry::Choose(const Group& group, const Batch& batch) const {
  std::string reasons;
  for (const auto& backend : backends_) {
    std::string why = backend->why_not();
    if (why.empty()) why = backend->Unsupported(group, batch);
    if (why.empty()) return backend.get();
    reasons += std::string(" ") + backend->name() + ": " + why;
  }
  return Status(Code::kBackendUnavailable, std::string("No backend can run ") + NameOf(batch.type) + "." + reasons);
}

}  // namespace hvd::backend
