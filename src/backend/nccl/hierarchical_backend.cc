#include "backend/nccl/hierarchical_backend.h"

#include <vector>

#include "backend/introduction.h"
#include "backend/nccl/levels.h"
#include "backend/nccl/reducing.h"
#include "collective/batch_log.h"

namespace hvd::backend::nccl {
namespace {

// Two of our kernels, NCCL's and a copy each way, their ends and, where a trace is written, their phases.
size_t CommandsOf(const Batch& batch) { return 2 * cuda::Packing::Launches(batch.tensors.size()) + 16; }

// ---- steps inside a host, on the buffer. Each ends when its work is on the queue.

// Every member's share of it becomes the sum of those of all members.
Task ReduceInside(const Call& call, const Share& share) {
  Result<Summing> how = SummingOfPacked(call);
  HVD_CO_TRY(how.status());
  call.Phase("MEMCPY_IN_FUSION_BUFFER");
  HVD_CO_TRY(Pack(call, share.packed, how->factor, share.buffer));
  call.Phase("NCCL_REDUCESCATTER");
  const int type = *TypeOf(call.batch.dtype);
  const Operation reduce{Operation::kReduceScatter, share.buffer, share.in_buffer(), share.elems, type, how->op};
  co_return co_await call.Put(std::vector<Operation>(1, reduce), "ncclReduceScatter");
}

// From the root to all on its host.
Task SpreadInside(const Call& call, const Share& share) {
  if (call.group.index == call.batch.root) {
    call.Phase("MEMCPY_IN_FUSION_BUFFER");
    HVD_CO_TRY(Pack(call, share.packed, 1.0f, share.buffer));
  }
  const int root = Inside(call.group).PlaceOf(call.group.ranks[call.batch.root]);
  call.Phase("NCCL_BCAST");
  const Operation spread{
      .kind = Operation::kBroadcast, .from = share.buffer, .to = share.buffer, .count = share.whole, .peer = root};
  co_return co_await call.Put(std::vector<Operation>(1, spread), "ncclBroadcast");
}

// Of every member's share.
Task GatherInside(const Call& call, const Share& share) {
  call.Phase("NCCL_ALLGATHER");
  const Operation gather{Operation::kAllgather, share.in_buffer(), share.buffer, share.bytes};
  co_return co_await call.Put(std::vector<Operation>(1, gather), "ncclAllGather");
}

// But for what a root has where its result is to be.
Status UnpackResults(const Call& call, Share& share) {
  const bool root = call.batch.type == OpType::kBroadcast && call.group.index == call.batch.root;
  std::erase_if(share.packed, [root](const Packed& p) { return root && p.tensor->input == p.tensor->output; });
  if (share.packed.empty()) return Status();
  call.Phase("MEMCPY_OUT_FUSION_BUFFER");
  return Unpack(call, share.packed, share.buffer);
}

}  // namespace

// The same on all members: it depends on nothing but what all know of group and batch.
std::string HierarchicalBackend::Unsupported(const Group& group, const Batch& batch) const {
  const DeviceWay& way = *group.device_way;
  if (batch.type == OpType::kBroadcast) {
    if (batch.hierarchical_allgather == 0) return "HOROVOD_HIERARCHICAL_ALLGATHER=0 forbids it";
    if (way.why_not_nccl.empty()) return "NCCL broadcasts to all members at once";
    return way.why_not_inside;
  }
  if (batch.type != OpType::kAllreduce) return "two levels are for allreduce and broadcast";
  if (batch.hierarchical == 0) return "HOROVOD_HIERARCHICAL_ALLREDUCE=0 forbids it";
  if (batch.hierarchical < 0 && way.why_not_nccl.empty()) return "NCCL reduces between all members at once";
  if (!way.why_not_inside.empty()) return way.why_not_inside;
  return WhyNotReduced(batch);
}

// Memory: B on the device, B/l pinned for each of l members. Invariant: everything on the device is one queue, so that
// no step begins before the one before it, and a share is where the step before has left it: in the buffer or in pinned
// memory.
Task HierarchicalBackend::Execute(const Group& group, Batch& batch) {
  collective::LogWay(batch, "by NCCL inside the hosts, then between them");
  const Inside inside(group);
  std::shared_ptr<Member> member;
  const DeviceWay& way = *group.device_way;
  Queues::Membership which{inside.ranks, inside.index, {way.inside}, 0, way.max_ctas};
  HVD_CO_TRY(co_await queues_->Join(std::move(which), &batch, &member));
  cuda::CudaDevices& devices = queues_->devices();
  const Call call{group, batch, *member, *devices.context(), devices.packing(), queues_->queue(0)};
  if (batch.phases != nullptr) batch.phases->Queue(call.on());
  HVD_CO_TRY(co_await queues_->Begin(&batch, call.queue, CommandsOf(batch)));
  Share share(call);
  if (share.bytes > 0) {
    HVD_CO_TRY(co_await between_.Prepare(&share));
    const Result<std::byte*> buffer = call.queue.scratch->Room(share.whole);
    HVD_CO_TRY(buffer.status());
    share.buffer = *buffer;
    HVD_CO_TRY(co_await Run(call, share));
    HVD_CO_TRY(UnpackResults(call, share));
  }
  co_return queues_->NoteEnd(call.queue, &batch);
}

Task HierarchicalBackend::Run(const Call& call, const Share& share) {
  return call.batch.type == OpType::kBroadcast ? Broadcast(call, share) : Allreduce(call, share);
}

// Inside: 2 (l-1)/l B moved by NCCL for each of l members. Over the bus and between the hosts: an allreduce of B/l for
// each member.
Task HierarchicalBackend::Allreduce(const Call& call, const Share& share) {
  HVD_CO_TRY(co_await ReduceInside(call, share));
  HVD_CO_TRY(co_await between_.Take(call, share));
  HVD_CO_TRY(co_await between_.Exchange(call, share));
  HVD_CO_TRY(between_.Return(call, share));
  co_return co_await GatherInside(call, share);
}

// On the root's host NCCL gives B to all members, who need it anyway, so that each has a share to send: B/l crosses
// the bus and goes to its counterparts. Elsewhere B/l comes and crosses the bus, and NCCL moves (l-1)/l B.
Task HierarchicalBackend::Broadcast(const Call& call, const Share& share) {
  const bool from_here = call.group.host_of[call.batch.root] == call.group.host_of[call.group.index];
  if (from_here) {
    HVD_CO_TRY(co_await SpreadInside(call, share));
    HVD_CO_TRY(co_await between_.Take(call, share));
  }
  HVD_CO_TRY(co_await between_.Exchange(call, share));
  if (from_here) co_return Status();
  HVD_CO_TRY(between_.Return(call, share));
  co_return co_await GatherInside(call, share);
}

std::string HierarchicalBackend::ActivityName(const Group&, const Batch& batch) const {
  return std::string("NCCL_HIERARCHICAL_") + ActivityOf(batch.type);
}

}  // namespace hvd::backend::nccl
