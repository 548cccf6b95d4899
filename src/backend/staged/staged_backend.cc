#include "backend/staged/staged_backend.h"

#include <thread>
#include <utility>

#include "backend/cuda/results.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "base/polled.h"
#include "collective/batch_log.h"

namespace hvd::backend::staged {
namespace {

using collective::Tensor;

constexpr double kLivelyS = 0.002;  // a copy of some megabytes; sleeping costs a tenth of a millisecond (docs/gpu.md)
constexpr double kAbortS = 5;
constexpr size_t kAlign = 64;

size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
size_t BytesOf(const Batch& batch, const Tensor& t) { return t.elems * SizeOf(batch.dtype); }

// Of one shape with the input.
bool FillsOutput(OpType type) { return type == OpType::kAllreduce || type == OpType::kBroadcast; }

// All but memory.
Batch Alike(const Batch& batch) {
  Batch staged;
  staged.seq = batch.seq;
  staged.type = batch.type;
  staged.dtype = batch.dtype;
  staged.op = batch.op;
  staged.prescale = batch.prescale;
  staged.postscale = batch.postscale;
  staged.root = batch.root;
  for (const Tensor& t : batch.tensors) {
    staged.tensors.emplace_back();
    Tensor& like = staged.tensors.back();
    like.shape = t.shape;
    like.elems = t.elems;
    like.row_elems = t.row_elems;
    like.splits = t.splits;
  }
  return staged;
}

}  // namespace

StagedBackend::~StagedBackend() { Abort(); }

Status StagedBackend::Use(std::shared_ptr<cuda::CudaDevices> devices) {
  Result<std::unique_ptr<cuda::Stream>> made = cuda::Stream::Make(devices->events());
  HVD_TRY(made.status());
  std::shared_ptr<const cuda::Stream> stream = std::move(*made);
  devices->memory().UsedOn(stream);
  std::shared_ptr<const cuda::Context> context = devices->context();
  own_.reset(new Work{std::move(devices), std::move(stream), cuda::PinnedBlock(std::move(context))});
  work_.store(own_.get(), std::memory_order_release);
  return Status();
}

Task StagedBackend::Execute(const Group& group, Batch& batch) {
  const double factor = batch.prescale * batch.postscale;
  const bool on_gpu = factor == 1.0 || cuda::Packing::CanScale(batch.dtype);
  const bool reduced = batch.type == OpType::kAllreduce || batch.type == OpType::kReducescatter;
  if (group.size() == 1 && work() != nullptr && (on_gpu || !reduced)) return Alone(group, batch);
  return ThroughHost(group, batch);
}

Task StagedBackend::Alone(const Group&, Batch& batch) {
  collective::LogWay(batch, "alone, on the GPU");
  const cuda::Stream& stream = *work()->stream;
  const bool reduced = batch.type == OpType::kAllreduce || batch.type == OpType::kReducescatter;
  const double factor = reduced ? batch.prescale * batch.postscale : 1.0;
  std::vector<cuda::Move> moves;
  for (Tensor& t : batch.tensors) {
    const bool by_rows = batch.type == OpType::kAllgather || batch.type == OpType::kAlltoall;
    if (by_rows) t.received_rows = {batch.type == OpType::kAlltoall ? t.splits[0] : t.shape[0]};
    const size_t elems = by_rows ? static_cast<size_t>(t.received_rows[0]) * t.row_elems : t.elems;
    const size_t bytes = elems * SizeOf(batch.dtype);
    if (t.device->made != nullptr) HVD_CO_TRY(t.device->made->HoldBack(stream.handle()));
    if (!FillsOutput(batch.type)) HVD_CO_TRY(cuda::PlaceResult(work()->devices->memory(), stream, bytes, &t));
    if (bytes > 0 && (t.input != t.output || factor != 1.0)) moves.push_back({t.input, t.output, bytes});
  }
  if (!moves.empty()) HVD_CO_TRY(work()->devices->packing().Launch(moves, batch.dtype, factor, stream.handle()));
  HVD_CO_TRY(Mark());
  for (Tensor& t : batch.tensors) t.device->ready = end_;
  co_return Status();
}

// The buffer is free when the batch before is through with it.
Task StagedBackend::ThroughHost(const Group& group, Batch& batch) {
  collective::LogWay(batch, "through pinned memory of the host");
  Batch staged = Alike(batch);
  HVD_CO_TRY(co_await Reached());
  returning_.clear();
  HVD_CO_TRY(CopyIn(batch, &staged));
  HVD_CO_TRY(co_await Reached());
  HVD_CO_TRY(co_await host_->Execute(group, staged));
  co_return CopyOut(batch, staged);
}

Status StagedBackend::CopyIn(const Batch& batch, Batch* staged) {
  size_t total = 0;
  for (const Tensor& t : batch.tensors) total += t.device == nullptr ? 0 : Aligned(BytesOf(batch, t));
  std::byte* to = nullptr;
  if (total > 0) {
    const Result<std::byte*> room = work()->pinned.Room(total);
    HVD_TRY(room.status());
    to = *room;
  }
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const Tensor& t = batch.tensors[i];
    Tensor& in_host = staged->tensors[i];
    const size_t bytes = BytesOf(batch, t);
    in_host.input = t.device == nullptr ? t.input : to;
    if (FillsOutput(batch.type)) in_host.output = t.device == nullptr ? t.output : to;
    if (t.device == nullptr || bytes == 0) continue;
    const cuda::Handle stream = work()->stream->handle();
    const cuda::Driver& driver = work()->devices->context()->driver();
    if (t.device->made != nullptr) HVD_TRY(t.device->made->HoldBack(stream));
    HVD_TRY(driver.Call(driver->memcpy_dtoh_async, to, cuda::AddressOf(t.input), bytes, stream));
    to += Aligned(bytes);
  }
  return work() == nullptr ? Status() : Mark();
}

Status StagedBackend::CopyOut(Batch& batch, Batch& staged) {
  if (work() == nullptr) return Status();
  const cuda::Handle stream = work()->stream->handle();
  const cuda::Driver& driver = work()->devices->context()->driver();
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    Tensor& t = batch.tensors[i];
    Tensor& from = staged.tensors[i];
    const size_t bytes = BytesOf(batch, t);
    if (t.device == nullptr) continue;
    if (!FillsOutput(batch.type)) {
      HVD_TRY(GiveResult(t, from));
    } else if (bytes > 0) {
      HVD_TRY(driver.Call(driver->memcpy_htod_async, cuda::AddressOf(t.output), from.output, bytes, stream));
    }
  }
  HVD_TRY(Mark());
  for (Tensor& t : batch.tensors) {
    if (t.device != nullptr) t.device->ready = end_;
  }
  return Status();
}

// From a block of the host, which is kept until it has been read.
Status StagedBackend::GiveResult(Tensor& to, Tensor& from) {
  const size_t bytes = from.result->bytes;
  to.received_rows = std::move(from.received_rows);
  HVD_TRY(cuda::PlaceResult(work()->devices->memory(), *work()->stream, bytes, &to));
  if (bytes > 0) {
    const cuda::Driver& driver = work()->devices->context()->driver();
    HVD_TRY(driver.Call(driver->memcpy_htod_async, cuda::AddressOf(to.output), from.result->data, bytes,
                        work()->stream->handle()));
  }
  returning_.push_back(std::move(from.result));
  return Status();
}

Status StagedBackend::Mark() {
  Result<std::shared_ptr<cuda::Event>> end = work()->stream->Record();
  HVD_TRY(end.status());
  end_ = std::move(*end);
  return Status();
}

Task StagedBackend::Reached() {
  if (end_ == nullptr) co_return Status();
  Status failure;
  co_await Polled(
      [&] {
        bool reached = false;
        failure = end_->Ask(&reached);
        return reached || !failure.ok();
      },
      kLivelyS);
  co_return failure;
}

// Copies end by themselves; tensors and blocks must not be let go before.
void StagedBackend::Abort() {
  const double deadline = MonotonicS() + kAbortS;
  while (end_ != nullptr && !end_->Reached() && MonotonicS() < deadline) std::this_thread::yield();
}

}  // namespace hvd::backend::staged
