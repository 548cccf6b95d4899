// HierarchicalBackend: allreduce on GPUs in two levels: NCCL inside each host, the host's ways between them
// (docs/design/0022-devices.md, decision 6). Each member brings the sum of its host's to pinned memory, of a share
// only, and reduces that with its counterparts. So a byte crosses the bus once each way for each host, not for each
// member.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/nccl/call.h"
#include "backend/nccl/queues.h"

namespace hvd::backend::nccl {

class HierarchicalBackend final : public Backend {
 public:
  // `backends`: of which one runs what goes between the hosts. Outlives this. `queues`: whose first one is used.
  HierarchicalBackend(const Registry* backends, std::shared_ptr<Queues> queues)
      : backends_(backends), queues_(std::move(queues)) {}

  const char* name() const override { return "hierarchical"; }
  bool for_devices() const override { return true; }
  bool usable() const override { return queues_->usable(); }
  std::string why_not() const override { return queues_->why_not(); }
  std::string Unsupported(const Group& group, const Batch& batch) const override;
  Track track() const override { return Track::kBoth; }
  Task Execute(const Group& group, Batch& batch) override;
  std::string ActivityName(const Group& group, const Batch& batch) const override;

 private:
  struct Share;
  Task ReduceInside(const Call& call, const Share& share);
  Task ReduceBetween(const Group& group, const Batch& batch, const Share& share);
  Task ShareInside(const Call& call, const Share& share);

  const Registry* const backends_;
  const std::shared_ptr<Queues> queues_;
  std::unique_ptr<cuda::PinnedBlock> pinned_;  // once in use
  std::shared_ptr<cuda::Event> free_;          // when the last batch is through with it
  std::vector<std::byte> scratch_;             // of the ways between the hosts
};

}  // namespace hvd::backend::nccl
