// NcclBackend: NCCL, or RCCL, moves what lies on GPUs (docs/design/0022-devices.md). Out of use until it is given a
// GPU. A task ends when its work is on the stream; what the device still does is watched from here.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_devices.h"
#include "backend/nccl/call.h"

namespace hvd::backend::nccl {

class NcclBackend final : public Backend {
 public:
  // `host`: tells the members' rows to one another. Outlives this.
  explicit NcclBackend(Backend* host) : host_(host) {}
  ~NcclBackend() override;

  const char* name() const override { return "nccl"; }
  bool for_devices() const override { return true; }
  bool usable() const override { return in_use_.load(std::memory_order_acquire); }
  std::string why_not() const override;
  int version() const override;
  std::string Unsupported(const Group& group, const Batch& batch) const override;
  Track track() const override { return Track::kDevice; }
  bool Prepares(const Batch& batch) const override;
  Task Prepare(const Group& group, Batch& batch) override;
  Task Execute(const Group& group, Batch& batch) override;
  Status CheckDevices(double now, double timeout_s) override;
  double next_check(double timeout_s) const override;
  void Abort() override;
  std::string ActivityName(const Group& group, const Batch& batch) const override;

  // ---- once, by any thread, before a tensor on the GPU has been submitted.
  Status Use(std::shared_ptr<Library> library, std::shared_ptr<cuda::CudaDevices> devices, int max_ctas);
  void Refuse(const std::string& why);

 private:
  // What works on the GPU.
  struct Work {
    std::shared_ptr<cuda::CudaDevices> devices;
    std::shared_ptr<Library> library;
    int max_ctas;
    std::shared_ptr<const cuda::Stream> stream;
    std::unique_ptr<cuda::Scratch> scratch;
  };
  struct Launched {
    std::shared_ptr<cuda::Event> end;
    std::string what;
  };
  Task Join(const Group& group, std::shared_ptr<Member>* member);
  Status WaitForInputs(const Batch& batch) const;
  Status PlaceResults(const Group& group, Batch& batch) const;
  Status NoteLaunched(Batch& batch);
  void ForgetEnded();
  void LeaveAll(bool abort);
  // Until all have left, or the time is over.
  bool AwaitLeaving(double deadline) const;

  Backend* const host_;
  std::atomic<bool> in_use_{false};
  mutable std::mutex mutex_;  // guards why_not_
  std::string why_not_ = "no tensor on a GPU has been submitted on this rank yet";

  // ---- the holder of the driver role only, once in use
  std::unique_ptr<Work> work_;
  std::map<std::vector<int>, std::shared_ptr<Member>> members_;  // by the ranks of the set
  std::deque<Launched> launched_;                                // and not known to have ended
  double moved_at_ = 0;                                          // when one of them was last known to have ended
  bool launching_ = false;  // a batch goes to the stream; how it ends is not in launched_ yet
  std::vector<std::thread> leaving_;
  const std::shared_ptr<std::atomic<int>> still_in_nccl_ = std::make_shared<std::atomic<int>>(0);  // of leaving_
};

}  // namespace hvd::backend::nccl
