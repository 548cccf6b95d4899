#include "backend/host_backend.h"

#include <limits>
#include <utility>

#include "collective/batch_log.h"
#include "collective/channels/adasum.h"
#include "collective/channels/collectives.h"
#include "collective/flow.h"
#include "collective/hosts/collectives.h"
#include "collective/shm/collectives.h"
#include "collective/solo.h"
#include "collective/widened.h"

namespace hvd::backend {
namespace {

enum class Way { kSolo, kPair, kSharedMemory, kTwoLevel, kChannels, kAdasum };

// Whether the members of a host work together: for what is reduced, and for what is only moved.
bool ByHosts(const Group& group, const Batch& batch) {
  switch (batch.type) {
    case OpType::kAllreduce:
    case OpType::kReducescatter:
      return batch.hierarchical != 0 && collective::hosts::Applies(group);
    case OpType::kBroadcast:
      return batch.hierarchical_allgather != 0 && collective::hosts::Applies(group) &&
             collective::hosts::BroadcastPays(group, batch);
    case OpType::kAllgather:
    case OpType::kAlltoall:
      return batch.hierarchical_allgather != 0 && collective::hosts::Applies(group);
    case OpType::kBarrier:
    case OpType::kJoin:
    case OpType::kSend:
    case OpType::kRecv:
      break;
  }
  return false;
}

// One host: shared memory. Several hosts with several ranks each: in two levels (unless switched off). Otherwise
// channels. The same on all members: it depends on nothing but what all know of group and batch.
Way Choose(const Group& group, const Batch& batch) {
  if (group.size() == 1) return Way::kSolo;
  if (IsPointToPoint(batch.type)) return Way::kPair;
  if (batch.type == OpType::kAllreduce && batch.op == ReduceOp::kAdasum) return Way::kAdasum;
  if (group.one_host() && group.local != nullptr) return Way::kSharedMemory;
  return ByHosts(group, batch) ? Way::kTwoLevel : Way::kChannels;
}

const char* Words(Way way) {
  switch (way) {
    case Way::kSolo:
      return "alone";
    case Way::kPair:
      return "over the connection between the two ranks";
    case Way::kSharedMemory:
      return "over shared memory";
    case Way::kTwoLevel:
      return "inside the hosts, then between them";
    case Way::kAdasum:
      return "by Adasum";
    case Way::kChannels:
      break;
  }
  return "over the connections between the ranks";
}

Task OverSharedMemory(const Group& group, Batch& batch) {
  switch (batch.type) {
    case OpType::kAllreduce:
      return collective::shm::Allreduce(group, batch);
    case OpType::kAllgather:
      return collective::shm::Allgather(group, batch);
    case OpType::kBroadcast:
      return collective::shm::Broadcast(group, batch);
    case OpType::kAlltoall:
      return collective::shm::Alltoall(group, batch);
    case OpType::kReducescatter:
      return collective::shm::Reducescatter(group, batch);
    case OpType::kBarrier:
    case OpType::kJoin:
    case OpType::kSend:
    case OpType::kRecv:
      break;
  }
  return collective::shm::Barrier(group, batch);
}

Task InTwoLevels(const Group& group, Batch& batch) {
  switch (batch.type) {
    case OpType::kAllreduce:
      return collective::hosts::Allreduce(group, batch);
    case OpType::kAllgather:
      return collective::hosts::Allgather(group, batch);
    case OpType::kBroadcast:
      return collective::hosts::Broadcast(group, batch);
    case OpType::kAlltoall:
      return collective::hosts::Alltoall(group, batch);
    case OpType::kReducescatter:
      return collective::hosts::Reducescatter(group, batch);
    case OpType::kBarrier:
    case OpType::kJoin:
    case OpType::kSend:
    case OpType::kRecv:
      break;
  }
  return collective::channels::Barrier(group, batch);
}

Task OverChannels(const Group& group, Batch& batch) {
  switch (batch.type) {
    case OpType::kAllreduce:
      return collective::channels::Allreduce(group, batch);
    case OpType::kAllgather:
      return collective::channels::Allgather(group, batch);
    case OpType::kBroadcast:
      return collective::channels::Broadcast(group, batch);
    case OpType::kAlltoall:
      return collective::channels::Alltoall(group, batch);
    case OpType::kReducescatter:
      return collective::channels::Reducescatter(group, batch);
    case OpType::kBarrier:
    case OpType::kJoin:
    case OpType::kSend:
    case OpType::kRecv:
      break;
  }
  return collective::channels::Barrier(group, batch);
}

Task By(Way way, const Group& group, Batch& batch) {
  switch (way) {
    case Way::kSolo:
      return collective::SoloCollective(group, batch);
    case Way::kPair:
      return collective::channels::SendOrRecv(group, batch);
    case Way::kSharedMemory:
      return OverSharedMemory(group, batch);
    case Way::kTwoLevel:
      return collective::SuffersFromSteps(batch) ? collective::Widened(group, batch, InTwoLevels)
                                                 : InTwoLevels(group, batch);
    case Way::kAdasum:
      return collective::channels::AdasumAllreduce(group, batch);
    case Way::kChannels:
      break;
  }
  return collective::SuffersFromSteps(batch) ? collective::Widened(group, batch, OverChannels)
                                             : OverChannels(group, batch);
}

// Whether the collective asks the flow itself: it works from the first byte to the last.
bool FollowsFlow(Way way, const Batch& batch) {
  return way == Way::kSharedMemory && (batch.type == OpType::kAllreduce || batch.type == OpType::kBroadcast);
}

Task AfterAll(Way way, const Group& group, Batch& batch) {
  HVD_CO_TRY(co_await std::exchange(batch.flow, nullptr)->Arrived(std::numeric_limits<size_t>::max()));
  co_return co_await By(way, group, batch);
}

}  // namespace

std::string HostBackend::Unsupported(const Group&, const Batch&) const { return ""; }

Task HostBackend::Execute(const Group& group, Batch& batch) {
  const Way way = Choose(group, batch);
  // An allreduce over shared memory knows more of its way, and says that itself.
  if (way != Way::kSharedMemory || batch.type != OpType::kAllreduce) collective::LogWay(batch, Words(way));
  return batch.flow == nullptr || FollowsFlow(way, batch) ? By(way, group, batch) : AfterAll(way, group, batch);
}

std::string HostBackend::ActivityName(const Group&, const Batch& batch) const {
  return std::string("GLOO_") + ActivityOf(batch.type);
}

}  // namespace hvd::backend
