// Ranks as threads, each with a GPU of its own, over the fake driver and the fake NCCL: a backend for each, and a
// stream as a framework has one, on which tensors come into being late.
#pragma once

#include <deque>
#include <functional>

#include "backend/host_backend.h"
#include "backend/introduction.h"
#include "backend/nccl/hierarchical_backend.h"
#include "backend/nccl/nccl_backend.h"
#include "backend/staged/staged_backend.h"
#include "native/backend/cuda/gpu.h"
#include "native/collective/channels/world.h"

namespace hvd::test {

using backend::nccl::HierarchicalBackend;
using backend::nccl::NcclBackend;
using collective::Batch;
using collective::Group;
using collective::Tensor;

// The backend of one rank, and its framework's stream.
class GpuRank {
 public:
  GpuRank(int device, backend::Registry* backends, backend::Backend* host, int streams)
      : queues(std::make_shared<backend::nccl::Queues>()), nccl(host, queues), hierarchical(backends, queues) {
    auto made = CudaDevices::Of(PathOfCuda(), device);
    EXPECT_OK(made.status());
    devices = *made;
    auto opened = backend::nccl::Library::Open(PathOfNccl(), OverHip() ? backend::nccl::kRccl : backend::nccl::kNccl);
    EXPECT_OK(opened.status());
    library = *opened;
    EXPECT_OK(queues->Use(library, devices, streams));
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
      EXPECT_OK(backend::cuda::CallIn(*devices->context(), driver->memcpy_htod_async, backend::cuda::AddressOf(t.input),
                                      staged_.back().data(), values.size(), framework->handle()));
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
      EXPECT_OK(backend::cuda::CallIn(*devices->context(), driver->memcpy_dtoh_async, found.data(),
                                      backend::cuda::AddressOf(t.output), bytes, framework->handle()));
    EXPECT_OK(framework->Synchronize());
    return found;
  }

  std::shared_ptr<CudaDevices> devices;
  std::shared_ptr<backend::nccl::Library> library;
  std::shared_ptr<backend::nccl::Queues> queues;
  NcclBackend nccl;
  HierarchicalBackend hierarchical;
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

// By NCCL between all ranks, through the host, by NCCL inside the hosts only, or by NCCL in either way.
enum class By { kNccl, kHost, kBoth, kEither };

// Ranks with the host's ways between them and a GPU each; which way the tensors on these go is the test's choice.
class GpuWorld {
 public:
  // piece: the smallest in which a tensor passes through the host.
  explicit GpuWorld(std::vector<int> host_of, int streams = 1,
                    size_t piece = backend::staged::StagedBackend::kSmallestPiece)
      : channels_(std::move(host_of), Link::kMemory, true) {
    backends_.Add(std::make_unique<backend::HostBackend>());
    for (int r = 0; r < channels_.size(); ++r) {
      ranks_.push_back(std::make_unique<GpuRank>(r, &backends_, &host_, streams));
      staged_.push_back(std::make_unique<backend::staged::StagedBackend>(&host_, piece));
      EXPECT_OK(staged_.back()->Use(ranks_.back()->devices));
    }
    for (int i = 0; i < streams; ++i) ids_.push_back(NewId());
    for (int i = 0; i < size(); ++i) ids_inside_.push_back(NewId());
  }
  int size() const { return channels_.size(); }
  GpuRank& rank(int r) { return *ranks_[r]; }
  // Of which one runs what goes between the hosts.
  backend::Registry& backends() { return backends_; }
  backend::staged::StagedBackend& staged(int r) { return *staged_[r]; }

  std::unique_ptr<GroupSide> MakeGroup(int r, By by) {
    auto side = channels_.MakeGroup(r);
    backend::DeviceWay way;
    if (by == By::kHost || by == By::kBoth) way.why_not_nccl = "the test does not want it";
    if (by == By::kHost || by == By::kNccl) way.why_not_inside = "the test does not want it";
    way.across = ids_;
    way.inside = ids_inside_[backend::FirstOnHostOf(side->group, side->group.index)];
    side->group.device_way = std::make_shared<backend::DeviceWay>(std::move(way));
    return side;
  }
  // As the executor does: what the members tell one another first, then the batch, by the first backend that can.
  Status Run(int r, const Group& group, Batch& batch) {
    batch.on_device = true;
    backend::Backend& hierarchical = ranks_[r]->hierarchical;
    if (hierarchical.Unsupported(group, batch).empty()) return Drive(r, batch.seq, hierarchical.Execute(group, batch));
    if (!ranks_[r]->nccl.Unsupported(group, batch).empty())
      return Drive(r, batch.seq, staged_[r]->Execute(group, batch));
    if (ranks_[r]->nccl.Prepares(batch)) {
      const Status told = Drive(r, batch.seq, ranks_[r]->nccl.Prepare(group, batch));
      if (!told.ok()) return told;
    }
    return Drive(r, batch.seq, ranks_[r]->nccl.Execute(group, batch));
  }

  // By a rank that has used no GPU.
  Status RunWithoutGpu(int r, const Group& group, Batch& batch) {
    batch.on_device = true;
    backend::staged::StagedBackend unused(&host_);
    return Drive(r, batch.seq, unused.Execute(group, batch));
  }
  // The same tensors, in the host's memory.
  Status RunOnHost(int r, const Group& group, Batch& batch) { return Drive(r, batch.seq, host_.Execute(group, batch)); }
  // Called by the rank itself: it is gone for the others.
  void Kill(int r, uint64_t seq) { channels_.Kill(r, seq); }

 private:
  Status Drive(int r, uint64_t seq, Task task) { return channels_.Drive(r, seq, std::move(task)); }
  backend::NcclId NewId() {
    auto id = ranks_[0]->library->NewId();
    EXPECT_OK(id.status());
    return (*id).bytes;
  }

  backend::HostBackend host_;
  backend::Registry backends_;
  ChannelWorld channels_;
  std::vector<std::unique_ptr<GpuRank>> ranks_;
  std::vector<std::unique_ptr<backend::staged::StagedBackend>> staged_;
  std::vector<backend::NcclId> ids_, ids_inside_;  // for each stream; for each host, by its first rank
};

// How the first ranks end their batches in two levels when one call of NCCL fails on one of them; the others do not
// come.
inline std::vector<Status> RunWhereOneFails(GpuWorld& world, const std::string& function, int ranks,
                                            const std::function<Batch(int)>& batch_of) {
  const Fakes fakes;
  fakes.fake_nccl_fail_next(function.c_str(), 3);
  std::vector<Status> ended(ranks);
  RanksAsThreads(ranks, [&](int r) {
    const auto side = world.MakeGroup(r, By::kBoth);
    Batch batch = batch_of(r);
    ended[r] = world.Run(r, side->group, batch);
    world.rank(r).queues->Abort();
  });
  return ended;
}

}  // namespace hvd::test
