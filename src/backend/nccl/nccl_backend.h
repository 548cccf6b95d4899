// NcclBackend: NCCL, or RCCL, moves what lies on GPUs (docs/design/0022-devices.md). Out of use until its queues are. A
// task ends when its work is on the stream; what the device still does is watched from here, for all who use the
// queues.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/nccl/queues.h"

namespace hvd::backend::nccl {

class NcclBackend final : public Backend {
 public:
  // `host`: tells the members' rows to one another. Outlives this.
  NcclBackend(Backend* host, std::shared_ptr<Queues> queues) : host_(host), queues_(std::move(queues)) {}

  const char* name() const override { return "nccl"; }
  bool for_devices() const override { return true; }
  bool usable() const override { return queues_->usable(); }
  std::string why_not() const override { return queues_->why_not(); }
  int version() const override;
  std::string Unsupported(const Group& group, const Batch& batch) const override;
  Track track() const override { return Track::kDevice; }
  bool Prepares(const Batch& batch) const override;
  Task Prepare(const Group& group, Batch& batch) override;
  Task Execute(const Group& group, Batch& batch) override;
  Status CheckDevices(double now, double timeout_s) override { return queues_->CheckDevices(now, timeout_s); }
  double next_check(double timeout_s) const override { return queues_->next_check(timeout_s); }
  void Abort() override { queues_->Abort(); }
  std::string ActivityName(const Group& group, const Batch& batch) const override;

 private:
  Status PlaceResults(const Group& group, const Queue& queue, Batch& batch) const;

  Backend* const host_;
  const std::shared_ptr<Queues> queues_;
  std::map<std::vector<int>, uint64_t> turns_;  // batches of each set until now, by its ranks
};

}  // namespace hvd::backend::nccl
