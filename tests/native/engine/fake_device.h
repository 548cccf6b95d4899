// Accelerators without any: what they would do later is done when the test says so. A fabric joins the devices of a
// job; the k-th launch of each member of a group meets the k-th of the others, as in NCCL, and must be of the same
// batch. Their memory is the host's.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <vector>

#include "backend/host_backend.h"
#include "backend/introduction.h"
#include "base/polled.h"
#include "collective/kernels/kernels.h"
#include "engine/wake/clock.h"
#include "native/harness/harness.h"

namespace hvd::test {

class FakeEvent final : public DeviceEvent {
 public:
  Status HoldBack(void* stream) const override {
    std::lock_guard<std::mutex> lock(mutex_);
    held_back_.push_back(stream);
    return Status();
  }
  bool Reached() const override { return reached_; }
  void Reach() { reached_ = true; }
  std::vector<void*> held_back() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return held_back_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<void*> held_back_;
  std::atomic<bool> reached_{false};
};

// What all ranks' devices share. Any thread.
class FakeFabric {
 public:
  struct Launch {
    int member = 0;
    collective::Batch* batch = nullptr;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::vector<size_t> elems;
    std::shared_ptr<FakeEvent> end = std::make_shared<FakeEvent>();
  };

  // Work is done as soon as all members have launched it; else in Work.
  std::atomic<bool> at_once{false};
  // While it is closed, no task gets to its launch.
  std::atomic<bool> open{true};

  void Put(int rank, const collective::Group& group, const collective::Batch& batch, Launch launch) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Meeting>& meetings = meetings_[group.ranks];
    const size_t k = counts_[{group.ranks, rank}]++;
    if (meetings.size() <= k) meetings.resize(k + 1);
    Meeting& m = meetings[k];
    const uint64_t id = batch.seq / 3;
    if (m.launches.empty()) {
      m.id = id;
      m.type = batch.type;
      m.op = batch.op;
      m.factors = {batch.prescale, batch.postscale};
    }
    EXPECT_EQ(m.id, id);
    if (!order_[rank].empty()) EXPECT(order_[rank].back() < id);
    order_[rank].push_back(id);
    m.launches.push_back(std::move(launch));
    m.complete = static_cast<int>(m.launches.size()) == group.size();
    if (m.complete && at_once) Do(m);
  }
  // Does what all members have launched.
  void Work() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [ranks, meetings] : meetings_) {
      for (Meeting& m : meetings) {
        if (m.complete && !m.done) Do(m);
      }
    }
  }
  // Of the batches that a rank has launched: their places in the log, in the order of the launches.
  std::vector<uint64_t> order(int rank) {
    std::lock_guard<std::mutex> lock(mutex_);
    return order_[rank];
  }

 private:
  struct Meeting {
    uint64_t id = 0;
    OpType type = OpType::kAllreduce;
    ReduceOp op = ReduceOp::kSum;
    collective::kernels::Factors factors;
    std::vector<Launch> launches;
    bool complete = false, done = false;
  };

  // float32 only. Sums in member order.
  static void Do(Meeting& m) {
    m.done = true;
    std::sort(m.launches.begin(), m.launches.end(),
              [](const Launch& a, const Launch& b) { return a.member < b.member; });
    const int n = static_cast<int>(m.launches.size());
    for (size_t t = 0; t < m.launches[0].inputs.size(); ++t) {
      const size_t elems = m.launches[0].elems[t];
      std::vector<std::vector<float>> inputs;
      for (const Launch& l : m.launches) {
        const auto* const first = reinterpret_cast<const float*>(l.inputs[t]);
        inputs.emplace_back(first, first + elems);
      }
      for (Launch& l : m.launches) {
        auto* out = reinterpret_cast<float*>(l.outputs[t]);
        if (m.type == OpType::kAllgather) {
          for (const auto& input : inputs) out = std::copy(input.begin(), input.end(), out);
          continue;
        }
        std::vector<const void*> sources;
        for (const auto& input : inputs) sources.push_back(input.data());
        void* to = out;
        collective::kernels::Reduce({DType::kFloat32, m.op, m.factors, sources.data(), n, &to, 1, elems});
      }
    }
    for (Launch& l : m.launches) l.end->Reach();
  }

  std::mutex mutex_;
  std::map<std::vector<int>, std::vector<Meeting>> meetings_;
  std::map<std::pair<std::vector<int>, int>, size_t> counts_;
  std::map<int, std::vector<uint64_t>> order_;
};

class FakeDevices final : public backend::Devices, public collective::BlockOwner {
 public:
  static inline int capturing = 0;  // its address is a stream that is being captured

  Place place() const override { return 1; }
  Result<std::shared_ptr<DeviceEvent>> Mark(void* stream) override {
    if (stream == &capturing)
      return Status(Code::kUnsupported, "its stream is being captured into a graph; capture what is around it.");
    ++marks;
    auto event = std::make_shared<FakeEvent>();
    event->Reach();
    return std::shared_ptr<DeviceEvent>(std::move(event));
  }
  Result<std::unique_ptr<collective::Block>> Allocate(size_t bytes) override {
    ++blocks;
    // It owns nothing of this object but the right to call TakeBack.
    std::shared_ptr<collective::BlockOwner> owner(std::shared_ptr<void>(), this);
    return std::make_unique<collective::Block>(new std::byte[bytes], bytes, std::move(owner));
  }
  Result<std::unique_ptr<collective::Block>> Identity(DType dtype, ReduceOp op, size_t elems,
                                                      std::shared_ptr<DeviceEvent>* ready) override {
    auto block = Allocate(elems * SizeOf(dtype));
    collective::kernels::FillIdentity(dtype, op, (*block)->data, elems);
    auto event = std::make_shared<FakeEvent>();
    event->Reach();
    *ready = std::move(event);
    return block;
  }
  Status Copy(void* to, const void* from, size_t bytes, const std::shared_ptr<DeviceEvent>& when, void* stream,
              std::unique_ptr<collective::Block> keep) override {
    EXPECT(when != nullptr && when->Reached() && stream == to && keep->data == from);
    std::memcpy(to, from, bytes);
    return Status();
  }
  void TakeBack(std::byte* data, size_t) override {
    --blocks;
    delete[] data;
  }

  std::atomic<int> marks{0}, blocks{0};  // made; not given back
};

// Runs allreduce and allgather on the devices.
class FakeDeviceBackend final : public backend::Backend {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  FakeDeviceBackend(int rank, FakeFabric* fabric, FakeDevices* devices)
      : rank_(rank), fabric_(fabric), devices_(devices) {}
  const char* name() const override { return "fake"; }
  bool for_devices() const override { return true; }
  std::string why_not() const override { return ""; }
  std::string Unsupported(const backend::Group& group, const backend::Batch& batch) const override {
    if (group.device_way == nullptr) return "the members have not been introduced";
    if (batch.type != OpType::kAllreduce && batch.type != OpType::kAllgather) return "it does not know that";
    return group.device_way->why_not_nccl;
  }
  backend::Track track() const override { return backend::Track::kDevice; }
  Task Execute(const backend::Group& group, backend::Batch& batch) override {
    co_await Polled([this] { return fabric_->open && (!chance || chance()); }, 0);
    FakeFabric::Launch launch;
    launch.member = group.index;
    for (collective::Tensor& t : batch.tensors) {
      EXPECT(t.device != nullptr);
      if (batch.type == OpType::kAllgather) {  // of equal parts
        auto block = devices_->Allocate(t.elems * sizeof(float) * group.size());
        t.output = (*block)->data;
        t.result = std::move(*block);
        t.received_rows.assign(group.size(), t.shape[0]);
      }
      launch.inputs.push_back(t.input);
      launch.outputs.push_back(t.output);
      launch.elems.push_back(t.elems);
      t.device->ready = launch.end;
    }
    if (patience_s < kNever) check_at = engine::NowS() + patience_s;
    fabric_->Put(rank_, group, batch, std::move(launch));
    co_return Status();
  }
  Status CheckDevices(double now, double) override {
    return now >= check_at ? Status(Code::kTimeout, "the device stands still") : Status();
  }
  double next_check(double) const override { return check_at; }
  void Abort() override {
    if (on_abort) on_abort();
    check_at = kNever;
  }
  std::string ActivityName(const backend::Group&, const backend::Batch&) const override { return "FAKE"; }

  std::function<bool()> chance;            // null: as soon as the fabric is open
  std::atomic<double> patience_s{kNever};  // from a launch on, until it fails
  std::atomic<double> check_at{kNever};
  std::function<void()> on_abort;

 private:
  const int rank_;
  FakeFabric* const fabric_;
  FakeDevices* const devices_;
};

// What the devices cannot, by the host's ways.
class FakeStaging final : public backend::Backend {
 public:
  const char* name() const override { return "staging"; }
  bool for_devices() const override { return true; }
  std::string why_not() const override { return ""; }
  std::string Unsupported(const backend::Group&, const backend::Batch&) const override { return ""; }
  Task Execute(const backend::Group& group, backend::Batch& batch) override { return host_.Execute(group, batch); }
  std::string ActivityName(const backend::Group&, const backend::Batch&) const override { return "STAGED"; }

 private:
  backend::HostBackend host_;
};

// Runs reducescatter by the host's ways, and has a part of it launched on the devices first and another one last.
class FakeOnBoth final : public backend::Backend {
 public:
  FakeOnBoth(int rank, FakeFabric* fabric) : rank_(rank), fabric_(fabric) {}
  const char* name() const override { return "both"; }
  bool for_devices() const override { return true; }
  std::string why_not() const override { return ""; }
  std::string Unsupported(const backend::Group& group, const backend::Batch& batch) const override {
    return batch.type == OpType::kReducescatter ? group.device_way->why_not_nccl : "it does not know that";
  }
  backend::Track track() const override { return backend::Track::kBoth; }
  Task Execute(const backend::Group& group, backend::Batch& batch) override {
    launched_.push_back(batch.seq / 3);
    EXPECT(fabric_->order(rank_).empty() || fabric_->order(rank_).back() < launched_.back());
    co_await Polled([this] { return open.load(); }, 0);
    HVD_CO_TRY(co_await host_.Execute(group, batch));
    EXPECT(fabric_->order(rank_).empty() || fabric_->order(rank_).back() < launched_.back());
    co_return Status();
  }
  std::string ActivityName(const backend::Group&, const backend::Batch&) const override { return "BOTH"; }
  // The places of its batches in the log.
  const std::vector<uint64_t>& launched() const { return launched_; }

  std::atomic<bool> open{true};  // for what comes between the two parts

 private:
  const int rank_;
  FakeFabric* const fabric_;
  backend::HostBackend host_;
  std::vector<uint64_t> launched_;
};

// Every member brings one byte: whether it has a device.
class FakeIntroducer final : public backend::Introducer {
 public:
  explicit FakeIntroducer(const backend::Registry* backends) : backends_(backends) {}
  Task Introduce(backend::Group& group, const backend::Batch& batch) override {
    ++introductions;
    EXPECT_EQ(batch.seq % 3, 1u);
    const std::byte mine{static_cast<uint8_t>(backends_->devices() != nullptr)};
    backend::Batch b;
    b.seq = batch.seq;
    b.type = OpType::kAllgather;
    b.dtype = DType::kUint8;
    collective::Tensor t;
    t.input = &mine;
    t.shape = {1};
    t.elems = 1;
    b.tensors.push_back(std::move(t));
    HVD_CO_TRY(co_await host_.Execute(group, b));
    auto way = std::make_shared<backend::DeviceWay>();
    for (int m = 0; m < group.size(); ++m) {
      if (b.tensors[0].output[m] == std::byte{0})
        way->why_not_nccl = "rank " + std::to_string(group.ranks[m]) + " has no device";
    }
    way->for_now = !way->why_not_nccl.empty();
    group.device_way = std::move(way);
    co_return Status();
  }
  std::atomic<int> introductions{0};

 private:
  const backend::Registry* const backends_;
  backend::HostBackend host_;
};

// The parts of one rank, in its registry.
struct FakeRank {
  FakeRank(int rank, FakeFabric* fabric, backend::Registry* backends, bool has_device = true) {
    auto on_device = std::make_unique<FakeDeviceBackend>(rank, fabric, &devices);
    auto on_both = std::make_unique<FakeOnBoth>(rank, fabric);
    backend = on_device.get();
    both = on_both.get();
    backends->Add(std::make_unique<FakeStaging>());
    backends->Add(std::move(on_device));
    backends->Add(std::move(on_both));
    auto by = std::make_unique<FakeIntroducer>(backends);
    introducer = by.get();
    backends->SetIntroducer(std::move(by));
    if (has_device) backends->SetDevices(&devices);
  }
  FakeDevices devices;
  FakeDeviceBackend* backend = nullptr;
  FakeOnBoth* both = nullptr;
  FakeIntroducer* introducer = nullptr;
};

}  // namespace hvd::test
