#include "backend/nccl/between.h"

#include <algorithm>

#include "backend/cuda/waiting.h"
#include "backend/nccl/levels.h"

namespace hvd::backend::nccl {
namespace {

using collective::Tensor;

// What the counterparts do with their shares.
Batch BetweenHosts(const Group& group, const Group& across, const Batch& batch, const Share& share) {
  Batch shares;
  shares.seq = batch.seq;
  shares.type = batch.type;
  shares.dtype = batch.dtype;
  shares.op = batch.op;
  const auto& hosts = across.host_of;
  shares.root = static_cast<int>(std::find(hosts.begin(), hosts.end(), group.host_of[batch.root]) - hosts.begin());
  Tensor& t = shares.tensors.emplace_back();
  t.input = t.output = share.in_host;
  t.elems = share.elems;
  t.shape = {static_cast<int64_t>(share.elems)};
  return shares;
}

}  // namespace

Task Between::Prepare(Share* share) {
  if (pinned_ == nullptr) pinned_ = std::make_unique<cuda::PinnedMemory>(queues_->devices().context());
  HVD_CO_TRY(co_await cuda::Reached(free_));
  pinned_->Reset();
  const Result<std::byte*> room = pinned_->Room(share->bytes);
  HVD_CO_TRY(room.status());
  share->in_host = *room;
  co_return Status();
}

Task Between::Take(const Call& call, const Share& share) {
  call.Phase("MEMCPY_IN_HOST_BUFFER");
  HVD_CO_TRY(cuda::CallIn(call.context, call.context.driver()->memcpy_dtoh_async, share.in_host,
                          cuda::AddressOf(share.in_buffer()), share.bytes, call.on()));
  call.Phase("");
  std::shared_ptr<cuda::Event> there;
  HVD_CO_TRY(queues_->NoteLaunched(call.queue, NameOf(call.batch.type), &there));
  co_return co_await cuda::Reached(there);
}

Task Between::Exchange(const Call& call, const Share& share) {
  Group across = Counterparts(call.group);
  Batch shares = BetweenHosts(call.group, across, call.batch, share);
  const Result<Backend*> way = backends_->Choose(across, shares);
  HVD_CO_TRY(way.status());
  across.scratch.swap(scratch_);
  Phases* const phases = call.batch.phases.get();
  call.Phase("");  // the device has nothing to do meanwhile
  if (phases != nullptr) phases->BeginOnHost((*way)->ActivityName(across, shares));
  const Status status = co_await (*way)->Execute(across, shares);
  if (phases != nullptr) phases->EndOnHost();
  scratch_.swap(across.scratch);
  co_return status;
}

Status Between::Return(const Call& call, const Share& share) {
  call.Phase("MEMCPY_OUT_HOST_BUFFER");
  HVD_TRY(cuda::CallIn(call.context, call.context.driver()->memcpy_htod_async, cuda::AddressOf(share.in_buffer()),
                       share.in_host, share.bytes, call.on()));
  return queues_->NoteLaunched(call.queue, NameOf(call.batch.type), &free_);
}

}  // namespace hvd::backend::nccl
