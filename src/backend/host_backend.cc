#include "backend/host_backend.h"

#include "collective/adasum.h"
#include "collective/channel.h"
#include "collective/shm.h"
#include "collective/solo.h"
#include "collective/two_level.h"

namespace hvd {
namespace {

enum class Way { kSolo, kSharedMemory, kTwoLevel, kChannels, kAdasum };

// One host: shared memory. Several hosts with several ranks each: reduce inside first (unless switched off). Otherwise
// channels.
Way Choose(const Group& group, const Batch& batch) {
  if (group.size() == 1) return Way::kSolo;
  if (batch.type == OpType::kAllreduce && batch.op == ReduceOp::kAdasum) return Way::kAdasum;
  if (group.one_host() && group.local != nullptr) return Way::kSharedMemory;
  if (batch.type == OpType::kAllreduce && group.hierarchical != 0 && TwoLevelApplies(group)) return Way::kTwoLevel;
  return Way::kChannels;
}

Task OverSharedMemory(const Group& group, Batch& batch) {
  switch (batch.type) {
    case OpType::kAllreduce:
      return ShmAllreduce(group, batch);
    case OpType::kAllgather:
      return ShmAllgather(group, batch);
    case OpType::kBroadcast:
      return ShmBroadcast(group, batch);
    case OpType::kAlltoall:
      return ShmAlltoall(group, batch);
    case OpType::kReducescatter:
      return ShmReducescatter(group, batch);
    case OpType::kBarrier:
    case OpType::kJoin:
      break;
  }
  return ShmBarrier(group, batch);
}

Task OverChannels(const Group& group, Batch& batch) {
  switch (batch.type) {
    case OpType::kAllreduce:
      return ChannelAllreduce(group, batch);
    case OpType::kAllgather:
      return ChannelAllgather(group, batch);
    case OpType::kBroadcast:
      return ChannelBroadcast(group, batch);
    case OpType::kAlltoall:
      return ChannelAlltoall(group, batch);
    case OpType::kReducescatter:
      return ChannelReducescatter(group, batch);
    case OpType::kBarrier:
    case OpType::kJoin:
      break;
  }
  return ChannelBarrier(group, batch);
}

}  // namespace

std::string HostBackend::Unsupported(const Group&, const Batch&) const { return ""; }

Task HostBackend::Execute(const Group& group, Batch& batch) {
  switch (Choose(group, batch)) {
    case Way::kSolo:
      return SoloCollective(group, batch);
    case Way::kSharedMemory:
      return OverSharedMemory(group, batch);
    case Way::kTwoLevel:
      return TwoLevelAllreduce(group, batch);
    case Way::kAdasum:
      return AdasumAllreduce(group, batch);
    case Way::kChannels:
      break;
  }
  return OverChannels(group, batch);
}

std::string HostBackend::ActivityName(const Group&, const Batch& batch) const {
  static const char* const kNames[] = {"ALLREDUCE",     "ALLGATHER", "BCAST", "ALLTOALL",
                                       "REDUCESCATTER", "BARRIER",   "JOIN"};
  return std::string("GLOO_") + kNames[static_cast<int>(batch.type)];
}

}  // namespace hvd
