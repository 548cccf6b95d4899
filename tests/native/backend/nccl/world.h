// Ranks as threads, each with a GPU of its own, over the fake driver and the fake NCCL: a backend for each, and a
// stream as a framework has one, on which tensors come into being late.
#pragma once

#include <deque>

#include "backend/host_backend.h"
#include "backend/introduction.h"
#include "backend/nccl/nccl_backend.h"
#include "backend/staged/staged_backend.h"
#include "native/backend/cuda/gpu.h"
#include "native/collective/channels/world.h"

namespace hvd::test {

using backend::nccl::NcclBackend;
using collective::Batch;
using collective::Group;
using collective::Tensor;

// The backend of one rank, and its framework's stream.
class GpuRank {
 public:
  GpuRank(int device, backend::Backend* host, int max_ctas = 0) : nccl(host) {
    auto made = CudaDevices::Of(PathOfCuda(), device);
    EXPECT_OK(made.status());
    devices = *made;
    auto opened = backend::nccl::Library::Open(PathOfNccl());
    EXPECT_OK(opened.status());
    library = *opened;
    EXPECT_OK(nccl.Use(library, devices, max_ctas));
    auto stream = backend::cuda::Stream::Make(devices->events());
    EXPECT_OK(stream.status());
    framework = std::move(*stream);
  }

  // A tensor on the device that holds `values` once the framework's stream has come so far.
  Tensor Put(const Bytes& values, std::vector<int64_t> shape, bool in_place) {
    Tensor t = MakeTensor(nullptr, nullptr, std::move(shape));
    t.device = std::make_unique<collective::OnDevice>();
    t.input = Room(values.size());
    t.output = in_place ? const_cast<std::byte*>(t.input) : Room(values.size());
    const auto& driver = devices->context()->driver();
    staged_.push_back(values);
    if (!values.empty())
      EXPECT_OK(driver.Call(driver->memcpy_htod_async, backend::cuda::AddressOf(t.input), staged_.back().data(),
                            values.size(), framework->handle()));
    auto made = devices->Mark(framework->handle());
    EXPECT_OK(made.status());
    t.device->made = *made;
    return t;
  }
  // What the framework finds there, once the result is ready.
  Bytes Take(const Tensor& t, size_t bytes) {
    Bytes found(bytes);
    EXPECT(t.device->ready != nullptr);
    EXPECT_OK(t.device->ready->HoldBack(framework->handle()));
    const auto& driver = devices->context()->driver();
    if (bytes > 0)
      EXPECT_OK(driver.Call(driver->memcpy_dtoh_async, found.data(), backend::cuda::AddressOf(t.output), bytes,
                            framework->handle()));
    EXPECT_OK(framework->Synchronize());
    return found;
  }

  std::shared_ptr<CudaDevices> devices;
  std::shared_ptr<backend::nccl::Library> library;
  NcclBackend nccl;
  std::unique_ptr<backend::cuda::Stream> framework;

 private:
  std::byte* Room(size_t bytes) {
    auto block = devices->Allocate(std::max<size_t>(bytes, 1));
    EXPECT_OK(block.status());
    blocks_.push_back(std::move(*block));
    return blocks_.back()->data;
  }
  std::vector<std::unique_ptr<collective::Block>> blocks_;
  std::deque<Bytes> staged_;
};

// Ranks with the host's ways between them and a GPU each; which way the tensors on these go is the test's choice.
class GpuWorld {
 public:
  // piece: the smallest in which a tensor passes through the host.
  explicit GpuWorld(std::vector<int> host_of, size_t piece = backend::staged::StagedBackend::kSmallestPiece)
      : channels_(std::move(host_of), Link::kMemory, true) {
    for (int r = 0; r < channels_.size(); ++r) {
      ranks_.push_back(std::make_unique<GpuRank>(r, &host_));
      staged_.push_back(std::make_unique<backend::staged::StagedBackend>(&host_, piece));
      EXPECT_OK(staged_.back()->Use(ranks_.back()->devices));
    }
    auto id = ranks_[0]->library->NewId();
    EXPECT_OK(id.status());
    by_nccl_ = std::make_shared<backend::DeviceWay>(backend::DeviceWay{"", (*id).bytes});
    by_host_ = std::make_shared<backend::DeviceWay>(backend::DeviceWay{"the test does not want it", {}});
  }
  int size() const { return channels_.size(); }
  GpuRank& rank(int r) { return *ranks_[r]; }
  backend::staged::StagedBackend& staged(int r) { return *staged_[r]; }

  std::unique_ptr<GroupSide> MakeGroup(int r, bool by_nccl) {
    auto side = channels_.MakeGroup(r);
    side->group.device_way = by_nccl ? by_nccl_ : by_host_;
    return side;
  }
  // As the executor does: what the members tell one another first, then the batch, by the first backend that can.
  Status Run(int r, const Group& group, Batch& batch) {
    batch.on_device = true;
    if (!ranks_[r]->nccl.Unsupported(group, batch).empty())
      return Drive(r, batch.seq, staged_[r]->Execute(group, batch));
    if (ranks_[r]->nccl.Prepares(batch)) {
      const Status told = Drive(r, batch.seq, ranks_[r]->nccl.Prepare(group, batch));
      if (!told.ok()) return told;
    }
    return Drive(r, batch.seq, ranks_[r]->nccl.Execute(group, batch));
  }

  // The same tensors, in the host's memory.
  Status RunOnHost(int r, const Group& group, Batch& batch) {
    return Drive(r, batch.seq, host_.Execute(group, batch));
  }
  void Kill(int r, uint64_t seq) { channels_.Kill(r, seq); }

 private:
  Status Drive(int r, uint64_t seq, Task task) { return channels_.Drive(r, seq, std::move(task)); }

  backend::HostBackend host_;
  ChannelWorld channels_;
  std::vector<std::unique_ptr<GpuRank>> ranks_;
  std::vector<std::unique_ptr<backend::staged::StagedBackend>> staged_;
  std::shared_ptr<backend::DeviceWay> by_nccl_, by_host_;
};

}  // namespace hvd::test
