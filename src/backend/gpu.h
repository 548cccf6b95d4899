// GpuBackends: the backends for what lies on GPUs, and how they come into use with the first such tensor.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/cuda_devices.h"
#include "backend/introducer.h"
#include "backend/nccl/queues.h"
#include "backend/staged/staged_backend.h"

namespace hvd::backend {

class GpuBackends {
 public:
  // Adds them to `registry`, out of use. `host` runs what they leave to it. Both outlive this.
  GpuBackends(Registry* registry, Backend* host);

  // See hvd_use_gpu. Any thread.
  Status Use(const hvd_gpu& gpu);

 private:
  std::string UseNccl(const hvd_gpu& gpu, const std::shared_ptr<cuda::CudaDevices>& devices);

  Registry* const registry_;
  GpuIntroducer* introducer_;
  const std::shared_ptr<nccl::Queues> queues_;
  staged::StagedBackend* staged_;
  std::mutex mutex_;  // one Use at a time
  std::shared_ptr<cuda::CudaDevices> devices_;
};

}  // namespace hvd::backend
