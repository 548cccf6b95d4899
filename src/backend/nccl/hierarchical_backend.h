// HierarchicalBackend: allreduce and broadcast on GPUs in two levels: NCCL inside each host, the host's ways between
// them (docs/design/0022-devices.md, decision 6). Each member takes a share to the other hosts, through pinned memory.
// So a byte crosses the bus once each way for each host, not for each member.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "backend/nccl/between.h"
#include "backend/nccl/call.h"
#include "backend/nccl/queues.h"

namespace hvd::backend::nccl {

class HierarchicalBackend final : public Backend {
 public:
  // `backends`: of which one runs what goes between the hosts. Outlives this. `queues`: whose first one is used.
  HierarchicalBackend(const Registry* backends, std::shared_ptr<Queues> queues)
      : queues_(std::move(queues)), between_(backends, queues_) {}

  const char* name() const override { return "hierarchical"; }
  bool for_devices() const override { return true; }
  bool usable() const override { return queues_->usable(); }
  std::string why_not() const override { return queues_->why_not(); }
  std::string Unsupported(const Group& group, const Batch& batch) const override;
  Track track() const override { return Track::kBoth; }
  Task Execute(const Group& group, Batch& batch) override;
  std::string ActivityName(const Group& group, const Batch& batch) const override;

 private:
  Task Run(const Call& call, const Share& share);
  Task Allreduce(const Call& call, const Share& share);
  Task Broadcast(const Call& call, const Share& share);

  const std::shared_ptr<Queues> queues_;
  Between between_;
};

}  // namespace hvd::backend::nccl
