#include "backend/gpu.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "backend/nccl/hierarchical_backend.h"
#include "backend/nccl/nccl_backend.h"
#include "base/log.h"

namespace hvd::backend {
namespace {

const nccl::Maker& MakerFor(const cuda::CudaDevices& devices) {
  return devices.context()->driver().platform().kind == cuda::Platform::kHip ? nccl::kRccl : nccl::kNccl;
}

DeviceFacts FactsOf(const cuda::CudaDevices& devices, const std::string& why_not) {
  DeviceFacts facts;
  facts.device = devices.context()->uuid();
  facts.place = devices.context()->place();
  facts.ordinal = devices.context()->device();
  facts.visible = devices.context()->visible();
  facts.is_rccl = &MakerFor(devices) == &nccl::kRccl ? 1 : 0;
  facts.SetWhyNot(why_not);
  return facts;
}

// What this rank wants of NCCL.
struct Wishes {
  int streams, max_ctas;
};

// The ids of the communicators that this member names.
Status NameCommunicators(const nccl::Library& library, const Group& group, DeviceFacts* facts) {
  const auto name = [&](NcclId* id) -> Status {
    const Result<nccl::UniqueId> made = library.NewId();
    HVD_TRY(made.status());
    *id = (*made).bytes;
    return Status();
  };
  if (group.index < facts->streams) HVD_TRY(name(&facts->across));
  if (!group.one_host() && FirstOnHostOf(group, group.index) == group.index) HVD_TRY(name(&facts->inside));
  return Status();
}

DeviceFacts FactsWithNccl(const cuda::CudaDevices& devices, const nccl::Library& library, Wishes wishes,
                          const Group& group) {
  const cuda::Current current(*devices.context());
  DeviceFacts facts = FactsOf(devices, "");
  facts.nccl_version = library.version();
  facts.streams = wishes.streams;
  facts.max_ctas = wishes.max_ctas;
  if (const Status named = NameCommunicators(library, group, &facts); !named.ok())
    return FactsOf(devices, named.message());
  return facts;
}

}  // namespace

GpuBackends::GpuBackends(Registry* registry, Backend* host)
    : registry_(registry), queues_(std::make_shared<nccl::Queues>()) {
  auto introducer = std::make_unique<GpuIntroducer>(host);
  auto staged = std::make_unique<staged::StagedBackend>(host);
  introducer_ = introducer.get();
  staged_ = staged.get();
  registry->SetIntroducer(std::move(introducer));
  registry->Add(std::move(staged));
  registry->Add(std::make_unique<nccl::NcclBackend>(host, queues_));
  registry->Add(std::make_unique<nccl::HierarchicalBackend>(registry, queues_));
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
  if (!why_not.empty()) queues_->Refuse(why_not);
  Log(LogLevel::kDebug, "uses " + (*devices)->context()->Text() + (why_not.empty() ? " by " : "; no ") +
                            MakerFor(**devices).name + (why_not.empty() ? "" : ": " + why_not));
  devices_ = std::move(*devices);
  registry_->SetDevices(devices_.get());
  return Status();
}

// Empty, or why NCCL is not to be had: no failure, the members agree on another way.
std::string GpuBackends::UseNccl(const hvd_gpu& gpu, const std::shared_ptr<cuda::CudaDevices>& devices) {
  std::string why_not = gpu.why_not_nccl != nullptr ? gpu.why_not_nccl : "";
  const Wishes wishes{std::max(1, gpu.streams), std::max(0, gpu.max_ctas)};
  // It has NCCL wait for the other ranks while the first communicator is made, in a call of this rank's driver.
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (why_not.empty() && blocking != nullptr && std::string(blocking) == "1")
    why_not = "NCCL_COMM_BLOCKING=1 is set, which has NCCL's calls wait for other ranks; unset it";
  std::shared_ptr<nccl::Library> library;
  if (why_not.empty()) {
    const nccl::Maker& maker = MakerFor(*devices);
    auto opened = nccl::Library::Open(gpu.nccl_library != nullptr ? gpu.nccl_library : maker.file, maker);
    Status usable = opened.status();
    // What one member cannot compile must not be found out in the middle of a batch.
    if (usable.ok()) usable = devices->packing().Prepare();
    if (usable.ok()) usable = queues_->Use(*opened, devices, wishes.streams);
    if (usable.ok()) {
      library = *opened;
    } else {
      why_not = usable.message();
    }
  }
  introducer_->SetFacts([devices, library, wishes, why_not](const Group& group) {
    return library != nullptr ? FactsWithNccl(*devices, *library, wishes, group) : FactsOf(*devices, why_not);
  });
  return why_not;
}

}  // namespace hvd::backend
