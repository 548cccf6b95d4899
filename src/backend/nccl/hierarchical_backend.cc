#include "backend/nccl/hierarchical_backend.h"

#include "backend/cuda/waiting.h"
#include "backend/introduction.h"
#include "backend/nccl/reducing.h"
#include "collective/batch_log.h"

namespace hvd::backend::nccl {
namespace {

using collective::Tensor;

// This member's place among those of its host, and theirs among all ranks.
struct Inside {
  explicit Inside(const Group& group) {
    for (int m = 0; m < group.size(); ++m) {
      if (group.host_of[m] != group.host_of[group.index]) continue;
      if (m == group.index) index = size();
      ranks.push_back(group.ranks[m]);
    }
  }
  int size() const { return static_cast<int>(ranks.size()); }
  std::vector<int> ranks;
  int index = 0;
};

// The members of the own local index, one on each host: `group` has equally many members on all of them.
Group Counterparts(const Group& group) {
  Group across;
  std::vector<int> met(group.size(), 0);  // members of a host until now, by its first one
  std::vector<int> local(group.size());
  for (int m = 0; m < group.size(); ++m) local[m] = met[FirstOnHostOf(group, m)]++;
  for (int m = 0; m < group.size(); ++m) {
    if (local[m] != local[group.index]) continue;
    if (m == group.index) {
      across.index = across.size();
      across.local_members = {across.size()};
    }
    across.ranks.push_back(group.ranks[m]);
    across.host_of.push_back(group.host_of[m]);
    across.channels.push_back(group.channels[m]);
  }
  across.stores = group.stores;
  across.deterministic = group.deterministic;
  return across;
}

}  // namespace

// The tensors of a batch in the buffer on the device, and the part of it that this member reduces between the hosts.
struct HierarchicalBackend::Share {
  Share(const Call& call) {
    size_t total = 0;
    for (const Tensor& t : call.batch.tensors) {
      if (t.elems == 0) continue;
      packed.push_back({&t, total});
      total += Aligned(call.BytesOf(t));
    }
    const auto n = static_cast<size_t>(call.member.size());
    bytes = Aligned((total + n - 1) / n);
    elems = bytes / call.elem_bytes();
    whole = bytes * n;
    at = bytes * static_cast<size_t>(call.member.index());
  }
  std::byte* in_buffer() const { return buffer + at; }

  std::vector<Packed> packed;
  size_t whole = 0, at = 0, bytes = 0, elems = 0;  // of the buffer; of the share
  std::byte* buffer = nullptr;
  std::byte* in_host = nullptr;  // pinned
};

// The same on all members: it depends on nothing but what all know of group and batch.
std::string HierarchicalBackend::Unsupported(const Group& group, const Batch& batch) const {
  const DeviceWay& way = *group.device_way;
  if (batch.type != OpType::kAllreduce) return "two levels are for allreduce";
  if (batch.hierarchical == 0) return "HOROVOD_HIERARCHICAL_ALLREDUCE=0 forbids it";
  if (batch.hierarchical < 0 && way.why_not_nccl.empty()) return "NCCL reduces between all members at once";
  if (!way.why_not_inside.empty()) return way.why_not_inside;
  return WhyNotReduced(batch);
}

// Inside: 2 (l-1)/l B moved by NCCL for each of l members. Over the bus and between the hosts: an allreduce of B/l for
// each member. Memory: B on the device, B/l pinned. Invariant: the share lies in the buffer, then in pinned memory,
// then in the buffer again, and everything on the device is one queue, so that no step begins before the one before it.
Task HierarchicalBackend::Execute(const Group& group, Batch& batch) {
  collective::LogWay(batch, "by NCCL inside the hosts, then between them");
  const Inside inside(group);
  std::shared_ptr<Member> member;
  const DeviceWay& way = *group.device_way;
  Queues::Membership which{inside.ranks, inside.index, {way.inside}, 0, way.max_ctas};
  HVD_CO_TRY(co_await queues_->Join(std::move(which), batch.phases.get(), &member));
  cuda::CudaDevices& devices = queues_->devices();
  const Call call{group, batch, *member, *devices.context(), devices.packing(), queues_->queue(0)};
  if (batch.phases != nullptr) batch.phases->Queue(call.on());
  HVD_CO_TRY(queues_->WaitForInputs(batch, call.queue));
  Share share(call);
  if (share.bytes > 0) {
    if (pinned_ == nullptr) pinned_ = std::make_unique<cuda::PinnedBlock>(devices.context());
    HVD_CO_TRY(co_await cuda::Reached(free_));
    const Result<std::byte*> buffer = call.queue.scratch->Room(share.whole), in_host = pinned_->Room(share.bytes);
    HVD_CO_TRY(buffer.status());
    HVD_CO_TRY(in_host.status());
    share.buffer = *buffer;
    share.in_host = *in_host;
    HVD_CO_TRY(co_await ReduceInside(call, share));
    HVD_CO_TRY(co_await ReduceBetween(group, batch, share));
    HVD_CO_TRY(co_await ShareInside(call, share));
  }
  co_return queues_->NoteEnd(call.queue, &batch);
}

// Until the host's sum of the share is in pinned memory.
Task HierarchicalBackend::ReduceInside(const Call& call, const Share& share) {
  Result<Summing> how = SummingOf(call);
  HVD_CO_TRY(how.status());
  call.Phase("MEMCPY_IN_FUSION_BUFFER");
  HVD_CO_TRY(Pack(call, share.packed, how->factor, share.buffer));
  call.Phase("NCCL_REDUCESCATTER");
  HVD_CO_TRY(Grouped(call, [&] {
    return call.library().ReduceScatter(share.buffer, share.in_buffer(), share.elems, *TypeOf(call.batch.dtype),
                                        how->op, call.comm(), call.on());
  }));
  HVD_CO_TRY(co_await call.member.Settled("ncclReduceScatter"));
  const cuda::Driver& driver = call.context.driver();
  call.Phase("MEMCPY_IN_HOST_BUFFER");
  HVD_CO_TRY(driver.Call(driver->memcpy_dtoh_async, share.in_host, cuda::AddressOf(share.in_buffer()), share.bytes,
                         call.on()));
  if (call.batch.phases != nullptr) call.batch.phases->End(call.on());
  std::shared_ptr<cuda::Event> there;
  HVD_CO_TRY(queues_->NoteLaunched(call.queue, NameOf(call.batch.type), 0, &there));
  co_return co_await cuda::Reached(there);
}

// In place, in pinned memory.
Task HierarchicalBackend::ReduceBetween(const Group& group, const Batch& batch, const Share& share) {
  Group across = Counterparts(group);
  Batch shares;
  shares.seq = batch.seq;
  shares.dtype = batch.dtype;
  shares.op = batch.op;
  Tensor& t = shares.tensors.emplace_back();
  t.input = t.output = share.in_host;
  t.elems = share.elems;
  t.shape = {static_cast<int64_t>(share.elems)};
  const Result<Backend*> way = backends_->Choose(across, shares);
  HVD_CO_TRY(way.status());
  across.scratch.swap(scratch_);
  if (batch.phases != nullptr) batch.phases->BeginOnHost((*way)->ActivityName(across, shares));
  const Status status = co_await (*way)->Execute(across, shares);
  if (batch.phases != nullptr) batch.phases->EndOnHost();
  scratch_.swap(across.scratch);
  co_return status;
}

// Until everything that is left to do is on the queue.
Task HierarchicalBackend::ShareInside(const Call& call, const Share& share) {
  const cuda::Driver& driver = call.context.driver();
  call.Phase("MEMCPY_OUT_HOST_BUFFER");
  HVD_CO_TRY(driver.Call(driver->memcpy_htod_async, cuda::AddressOf(share.in_buffer()), share.in_host, share.bytes,
                         call.on()));
  HVD_CO_TRY(queues_->NoteLaunched(call.queue, NameOf(call.batch.type), 0, &free_));
  call.Phase("NCCL_ALLGATHER");
  HVD_CO_TRY(Grouped(call, [&] {
    return call.library().Allgather(share.in_buffer(), share.buffer, share.bytes, call.comm(), call.on());
  }));
  HVD_CO_TRY(co_await call.member.Settled("ncclAllGather"));
  call.Phase("MEMCPY_OUT_FUSION_BUFFER");
  co_return Unpack(call, share.packed, share.buffer);
}

std::string HierarchicalBackend::ActivityName(const Group&, const Batch& batch) const {
  return std::string("NCCL_HIERARCHICAL_") + ActivityOf(batch.type);
}

}  // namespace hvd::backend::nccl
