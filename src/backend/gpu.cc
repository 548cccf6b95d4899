#include "backend/gpu.h"

#include <utility>

#include "base/log.h"

namespace hvd::backend {
namespace {

DeviceFacts FactsOf(const cuda::CudaDevices& devices, const nccl::Library* library, const std::string& why_not,
                    bool first) {
  DeviceFacts facts;
  facts.device = devices.context()->uuid();
  facts.SetWhyNot(why_not);
  if (library == nullptr) return facts;
  facts.nccl_version = library->version();
  if (!first) return facts;
  const cuda::Current current(*devices.context());
  const Result<nccl::UniqueId> id = library->NewId();
  if (id.ok()) {
    facts.nccl_id = (*id).bytes;
  } else {
    facts.nccl_version = 0;
    facts.SetWhyNot(id.status().message());
  }
  return facts;
}

}  // namespace

GpuBackends::GpuBackends(Registry* registry, Backend* host) : registry_(registry) {
  auto introducer = std::make_unique<GpuIntroducer>(host);
  auto by_nccl = std::make_unique<nccl::NcclBackend>(host);
  auto staged = std::make_unique<staged::StagedBackend>(host);
  introducer_ = introducer.get();
  nccl_ = by_nccl.get();
  staged_ = staged.get();
  registry->SetIntroducer(std::move(introducer));
  registry->Add(std::move(staged));
  registry->Add(std::move(by_nccl));
}

Status GpuBackends::Use(const hvd_gpu& gpu) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (devices_ != nullptr) {
    return Status(Code::kInvalidArgument,
                  "hvd_use_gpu: this rank uses " + devices_->context()->Text() + " already; a rank has one GPU.");
  }
  Result<std::shared_ptr<cuda::CudaDevices>> devices =
      cuda::CudaDevices::Of(gpu.cuda_library != nullptr ? gpu.cuda_library : "libcuda.so.1", gpu.device);
  HVD_TRY(devices.status());
  HVD_TRY(staged_->Use(*devices));
  const std::string why_not = UseNccl(gpu, *devices);
  if (!why_not.empty()) nccl_->Refuse(why_not);
  Log(LogLevel::kDebug,
      "uses " + (*devices)->context()->Text() + (why_not.empty() ? " by NCCL" : "; no NCCL: " + why_not));
  devices_ = std::move(*devices);
  registry_->SetDevices(devices_.get());
  return Status();
}

// Empty, or why NCCL is not to be had: no failure, the members agree on another way.
std::string GpuBackends::UseNccl(const hvd_gpu& gpu, const std::shared_ptr<cuda::CudaDevices>& devices) {
  std::string why_not = gpu.why_not_nccl != nullptr ? gpu.why_not_nccl : "";
  std::shared_ptr<nccl::Library> library;
  if (why_not.empty()) {
    auto opened = nccl::Library::Open(gpu.nccl_library != nullptr ? gpu.nccl_library : "libnccl.so.2");
    Status usable = opened.status();
    if (usable.ok()) usable = nccl_->Use(*opened, devices, gpu.max_ctas);
    if (usable.ok()) {
      library = *opened;
    } else {
      why_not = usable.message();
    }
  }
  introducer_->SetFacts(
      [devices, library, why_not](bool first) { return FactsOf(*devices, library.get(), why_not, first); });
  return why_not;
}

}  // namespace hvd::backend
