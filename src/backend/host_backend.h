// HostBackend: the processors and memory of the hosts: shared memory inside one, sockets between them. Always there;
// the public surface calls it "gloo" for the sake of existing scripts.
#pragma once

#include "backend/backend.h"

namespace hvd::backend {

class HostBackend final : public Backend {
 public:
  const char* name() const override { return "host"; }
  std::string why_not() const override { return ""; }
  std::string Unsupported(const Group& group, const Batch& batch) const override;
  Task Execute(const Group& group, Batch& batch) override;
  std::string ActivityName(const Group& group, const Batch& batch) const override;
};

}  // namespace hvd::backend
