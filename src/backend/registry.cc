#include <algorithm>

#include "backend/backend.h"

namespace hvd::backend {

const char* ActivityOf(OpType type) {
  static const char* const kNames[] = {"ALLREDUCE", "ALLGATHER", "BCAST", "ALLTOALL", "REDUCESCATTER",
                                       "BARRIER",   "JOIN",      "SEND",  "RECV"};
  return kNames[static_cast<int>(type)];
}

Task Backend::Prepare(const Group&, Batch&) { co_return Status(); }

Result<Backend*> Registry::Choose(const Group& group, const Batch& batch) const {
  for (const auto& backend : backends_) {
    if (backend->for_devices() != batch.on_device) continue;
    if (backend->usable() && backend->Unsupported(group, batch).empty()) return backend.get();
  }
  std::string reasons;
  for (const auto& backend : backends_) {
    if (backend->for_devices() != batch.on_device) continue;
    std::string why = backend->why_not();
    if (why.empty()) why = backend->Unsupported(group, batch);
    reasons += std::string(" ") + backend->name() + ": " + why;
  }
  return Status(Code::kBackendUnavailable, std::string("No backend can run ") + NameOf(batch.type) + "." + reasons);
}

Status Registry::CheckDevices(double now, double timeout_s) const {
  if (devices() == nullptr) return Status();
  for (const auto& backend : backends_) HVD_TRY(backend->CheckDevices(now, timeout_s));
  return Status();
}

double Registry::next_check(double timeout_s) const {
  double at = std::numeric_limits<double>::infinity();
  if (devices() == nullptr) return at;
  for (const auto& backend : backends_) at = std::min(at, backend->next_check(timeout_s));
  return at;
}

void Registry::Abort() noexcept {
  for (const auto& backend : backends_) backend->Abort();
}

}  // namespace hvd::backend
