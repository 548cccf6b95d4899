#include "backend/staged/staged_backend.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "backend/cuda/results.h"
#include "backend/cuda/waiting.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "collective/batch_log.h"

namespace hvd::backend::staged {
namespace {

using collective::Tensor;

constexpr double kAbortS = 5;
constexpr size_t kAlign = 64;
constexpr size_t kFewestPieces = 8;

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
  staged.hierarchical = batch.hierarchical;
  staged.hierarchical_allgather = batch.hierarchical_allgather;
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
  std::shared_ptr<const cuda::Stream> streams[2];
  for (std::shared_ptr<const cuda::Stream>& stream : streams) {
    Result<std::unique_ptr<cuda::Stream>> made = cuda::Stream::Make(devices->events());
    HVD_TRY(made.status());
    stream = std::move(*made);
    devices->memory().UsedOn(stream);
  }
  std::shared_ptr<const cuda::Context> context = devices->context();
  own_.reset(new Work{std::move(devices), std::move(streams[0]), std::move(streams[1]), cuda::PinnedMemory(context),
                      PinnedResults(context)});
  work_.store(own_.get(), std::memory_order_release);
  return Status();
}

Task StagedBackend::Execute(const Group& group, Batch& batch) {
  // This rank has joined before it used a GPU, and stands in with the host's memory.
  if (batch.tensors[0].device == nullptr) return host_->Execute(group, batch);
  return group.size() == 1 && CanStay(batch) ? Alone(group, batch) : ThroughHost(group, batch);
}

// Without kernels it can copy, but not multiply.
bool StagedBackend::CanStay(const Batch& batch) const {
  const bool reduced = batch.type == OpType::kAllreduce || batch.type == OpType::kReducescatter;
  if (!reduced || batch.prescale * batch.postscale == 1.0) return true;
  return cuda::Packing::CanScale(batch.dtype) && work()->devices->packing().Prepare().ok();
}

Task StagedBackend::Alone(const Group&, Batch& batch) {
  collective::LogWay(batch, "alone, on the GPU");
  const cuda::Stream& stream = *work()->out;
  const bool reduced = batch.type == OpType::kAllreduce || batch.type == OpType::kReducescatter;
  const double factor = reduced ? batch.prescale * batch.postscale : 1.0;
  std::vector<cuda::Move> moves;
  if (batch.phases != nullptr) batch.phases->Queue(stream.handle());
  for (Tensor& t : batch.tensors) {
    const bool by_rows = batch.type == OpType::kAllgather || batch.type == OpType::kAlltoall;
    if (by_rows) t.received_rows = {batch.type == OpType::kAlltoall ? t.splits[0] : t.shape[0]};
    const size_t elems = by_rows ? static_cast<size_t>(t.received_rows[0]) * t.row_elems : t.elems;
    const size_t bytes = elems * SizeOf(batch.dtype);
    if (t.device->made != nullptr) HVD_CO_TRY(t.device->made->HoldBack(stream.handle()));
    if (!FillsOutput(batch.type)) HVD_CO_TRY(cuda::PlaceResult(work()->devices->memory(), stream, bytes, &t));
    if (bytes > 0 && (t.input != t.output || factor != 1.0)) moves.push_back({t.input, t.output, bytes});
  }
  if (batch.phases != nullptr) batch.phases->Begin("MEMCPY_ON_DEVICE", stream.handle());
  HVD_CO_TRY(MoveOver(moves, batch.dtype, factor));
  if (batch.phases != nullptr) batch.phases->End(stream.handle());
  HVD_CO_TRY(Mark());
  for (Tensor& t : batch.tensors) t.device->ready = end_;
  co_return Status();
}

// The buffer is free when the batch before is through with it.
Task StagedBackend::ThroughHost(const Group& group, Batch& batch) {
  collective::LogWay(batch, "through pinned memory of the host");
  Batch staged = Alike(batch);
  HVD_CO_TRY(co_await cuda::Reached(end_));
  returning_.clear();
  work()->results.Reset();
  work()->pinned.Reset();
  size_t total = 0;
  for (const Tensor& t : batch.tensors) total += Aligned(BytesOf(batch, t));
  const Result<std::byte*> room = work()->pinned.Room(total);
  HVD_CO_TRY(room.status());
  StagedFlow flow(
      Ways{work()->devices->packing(), *work()->devices->context(), *work()->in, *work()->out, batch.phases.get()},
      std::clamp(total / kFewestPieces, smallest_piece_, kLargestPiece));
  Lead(group, batch, *room, &staged, &flow);
  staged.flow = &flow;
  if (batch.phases != nullptr) {
    batch.phases->Queue(work()->in->handle());
    batch.phases->BeginOnHost(host_->ActivityName(group, staged));
  }
  HVD_CO_TRY(co_await host_->Execute(group, staged));
  if (batch.phases != nullptr) batch.phases->EndOnHost();
  co_return Finish(group, batch, staged, flow);
}

// Each tensor into the pinned memory and, where its result is as large, from there to the result. What a broadcast's
// receivers hold is nobody's business, and its root has the result already.
void StagedBackend::Lead(const Group& group, const Batch& batch, std::byte* room, Batch* staged, StagedFlow* flow) {
  const bool moved = batch.type == OpType::kBroadcast, root = moved && group.index == batch.root;
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const Tensor& t = batch.tensors[i];
    Tensor& in_host = staged->tensors[i];
    in_host.input = room;
    if (FillsOutput(batch.type)) {
      in_host.output = room;
    } else {
      in_host.giver = &work()->results;
    }
    flow->Add(moved && !root ? nullptr : t.input, room, FillsOutput(batch.type) && !root ? t.output : nullptr,
              BytesOf(batch, t), t.device->made);
    room += Aligned(BytesOf(batch, t));
  }
}

Status StagedBackend::Finish(const Group& group, Batch& batch, Batch& staged, StagedFlow& flow) {
  HVD_TRY(flow.Left(flow.total()));
  if (batch.type == OpType::kBroadcast && group.index == batch.root) HVD_TRY(CopyOver(batch));
  if (!FillsOutput(batch.type) && batch.phases != nullptr)
    batch.phases->Begin("MEMCPY_OUT_HOST_BUFFER", work()->out->handle());
  for (size_t i = 0; i < batch.tensors.size() && !FillsOutput(batch.type); ++i)
    HVD_TRY(GiveResult(batch.tensors[i], staged.tensors[i]));
  if (batch.phases != nullptr) batch.phases->End(work()->out->handle());
  HVD_TRY(Mark());
  for (Tensor& t : batch.tensors) t.device->ready = end_;
  return Status();
}

// The root's results, on the device.
Status StagedBackend::CopyOver(const Batch& batch) {
  std::vector<cuda::Move> moves;
  for (const Tensor& t : batch.tensors) {
    if (t.input != t.output && t.elems > 0) moves.push_back({t.input, t.output, BytesOf(batch, t)});
  }
  return CopyEach(moves);
}

Status StagedBackend::CopyEach(const std::vector<cuda::Move>& moves) {
  const cuda::Context& context = *work()->devices->context();
  for (const cuda::Move& move : moves) {
    HVD_TRY(cuda::CallIn(context, context.driver()->memcpy_dtod_async, cuda::AddressOf(move.to),
                         cuda::AddressOf(move.from), move.bytes, work()->out->handle()));
  }
  return Status();
}

// On the device; by one launch where there are kernels.
Status StagedBackend::MoveOver(const std::vector<cuda::Move>& moves, DType dtype, double factor) {
  if (moves.empty()) return Status();
  cuda::Packing& packing = work()->devices->packing();
  if (!packing.Prepare().ok() && factor == 1.0) return CopyEach(moves);
  return packing.Launch(moves, dtype, factor, work()->out->handle());
}

// From a block of the host, which is kept until it has been read.
Status StagedBackend::GiveResult(Tensor& to, Tensor& from) {
  const size_t bytes = from.result->bytes;
  to.received_rows = std::move(from.received_rows);
  HVD_TRY(cuda::PlaceResult(work()->devices->memory(), *work()->out, bytes, &to));
  if (bytes > 0) {
    const cuda::Context& context = *work()->devices->context();
    HVD_TRY(cuda::CallIn(context, context.driver()->memcpy_htod_async, cuda::AddressOf(to.output), from.result->data,
                         bytes, work()->out->handle()));
  }
  returning_.push_back(std::move(from.result));
  return Status();
}

Status StagedBackend::Mark() {
  Result<std::shared_ptr<cuda::Event>> end = work()->out->Record();
  HVD_TRY(end.status());
  end_ = std::move(*end);
  return Status();
}

// Copies end by themselves; tensors and blocks must not be let go before.
void StagedBackend::Abort() {
  if (work() == nullptr) return;
  const double deadline = MonotonicS() + kAbortS;
  for (const auto& stream : {work()->in, work()->out}) {
    const Result<std::shared_ptr<cuda::Event>> end = stream->Record();
    while (end.ok() && !(*end)->Reached() && MonotonicS() < deadline) std::this_thread::yield();
  }
}

}  // namespace hvd::backend::staged
