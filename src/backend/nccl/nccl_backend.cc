#include "backend/nccl/nccl_backend.h"

#include <cstring>

#include "backend/cuda/results.h"
#include "backend/introduction.h"
#include "backend/nccl/reducing.h"
#include "backend/talk.h"
#include "collective/batch_log.h"
#include "collective/shm/collectives.h"

namespace hvd::backend::nccl {
namespace {

// The first dimension of this rank's tensors, or what it splits them into.
std::vector<int64_t> RowsOf(const Group& group, const Batch& batch) {
  std::vector<int64_t> rows;
  if (batch.type == OpType::kAllgather) {
    for (const collective::Tensor& t : batch.tensors) rows.push_back(t.shape[0]);
    return rows;
  }
  for (int m = 0; m < group.size(); ++m) {
    for (const collective::Tensor& t : batch.tensors) rows.push_back(t.splits[m]);
  }
  return rows;
}

}  // namespace

int NcclBackend::version() const { return usable() ? queues_->library().version() : 0; }

// The same on all members: it depends on nothing but what all know of group and batch.
std::string NcclBackend::Unsupported(const Group& group, const Batch& batch) const {
  if (!group.device_way->why_not_nccl.empty()) return group.device_way->why_not_nccl;
  if (batch.type != OpType::kAllreduce && batch.type != OpType::kReducescatter) return "";
  return WhyNotReduced(batch);
}

bool NcclBackend::Prepares(const Batch& batch) const {
  return batch.type == OpType::kAllgather || batch.type == OpType::kAlltoall;
}

Task NcclBackend::Prepare(const Group& group, Batch& batch) {
  const std::vector<int64_t> mine = RowsOf(group, batch);
  const auto bytes = std::as_bytes(std::span(mine));
  std::vector<std::byte> received;
  if (batch.type == OpType::kAllgather) {
    HVD_CO_TRY(co_await TellAll(*host_, group, batch.seq, bytes, &received));
  } else {
    HVD_CO_TRY(co_await TellEach(*host_, group, batch.seq, bytes, &received));
  }
  // From each member, for each tensor.
  const size_t n = batch.tensors.size();
  std::vector<int64_t> theirs(n * group.size());
  std::memcpy(theirs.data(), received.data(), theirs.size() * sizeof(int64_t));
  for (size_t i = 0; i < n; ++i) {
    for (int m = 0; m < group.size(); ++m) batch.tensors[i].received_rows.push_back(theirs[m * n + i]);
  }
  co_return Status();
}

// Batches of a set take its queues in turn: all members count them alike, in the order of the log.
Task NcclBackend::Execute(const Group& group, Batch& batch) {
  collective::LogWay(batch, "by NCCL");
  const DeviceWay& way = *group.device_way;
  const int turn = static_cast<int>(turns_[group.ranks]++ % way.across.size());
  std::shared_ptr<Member> member;
  Queues::Membership which{group.ranks, group.index, {way.across[turn]}, turn, way.max_ctas};
  HVD_CO_TRY(co_await queues_->Join(std::move(which), &batch, &member));
  Queue& queue = queues_->queue(turn);
  cuda::CudaDevices& devices = queues_->devices();
  const Call call{group, batch, *member, *devices.context(), devices.packing(), queue};
  if (batch.phases != nullptr) batch.phases->Queue(call.on());
  HVD_CO_TRY(co_await queues_->Begin(&batch, queue, CommandsOf(group, batch)));
  HVD_CO_TRY(PlaceResults(group, queue, batch));
  switch (batch.type) {
    case OpType::kAllreduce:
      HVD_CO_TRY(co_await Allreduce(call));
      break;
    case OpType::kReducescatter:
      HVD_CO_TRY(co_await Reducescatter(call));
      break;
    case OpType::kBroadcast:
      HVD_CO_TRY(co_await Broadcast(call));
      break;
    case OpType::kAllgather:
      HVD_CO_TRY(co_await Allgather(call));
      break;
    case OpType::kAlltoall:
      HVD_CO_TRY(co_await Alltoall(call));
      break;
    case OpType::kBarrier:
    case OpType::kJoin:
    case OpType::kSend:
    case OpType::kRecv:
      break;
  }
  co_return queues_->NoteEnd(queue, &batch);
}

Status NcclBackend::PlaceResults(const Group& group, const Queue& queue, Batch& batch) const {
  if (batch.type == OpType::kAllreduce || batch.type == OpType::kBroadcast) return Status();
  if (batch.phases != nullptr) batch.phases->Begin("ALLOCATE_OUTPUT", queue.stream->handle());
  for (collective::Tensor& t : batch.tensors) {
    size_t rows = 0;
    for (const int64_t from_one : t.received_rows) rows += static_cast<size_t>(from_one);
    if (batch.type == OpType::kReducescatter)
      rows = collective::shm::BlockOfMember(static_cast<size_t>(t.shape[0]), group.size(), group.index).count;
    const size_t bytes = rows * t.row_elems * SizeOf(batch.dtype);
    HVD_TRY(cuda::PlaceResult(queues_->devices().memory(), *queue.stream, bytes, &t));
  }
  return Status();
}

std::string NcclBackend::ActivityName(const Group&, const Batch& batch) const {
  return std::string("NCCL_") + ActivityOf(batch.type);
}

}  // namespace hvd::backend::nccl
