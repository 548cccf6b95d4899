#include "backend/introducer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/talk.h"
#include "base/log.h"

namespace hvd::backend {
namespace {

// What is done with tensors in two levels where these can be had; empty: the settings forbid all of it.
std::string InTwoLevels(const Batch& batch) {
  const std::string reduced = batch.hierarchical != 0 ? "reduced" : "";
  const std::string sent = batch.hierarchical_allgather != 0 ? "broadcast" : "";
  return reduced + (reduced.empty() || sent.empty() ? "" : " and ") + sent;
}

// What the first member says of it; empty: there is nothing to say.
std::string Words(const DeviceWay& way, const Batch& batch) {
  const bool in_two = way.why_not_inside.empty();
  const std::string library = way.library;
  if (way.why_not_nccl.empty()) {
    if (batch.hierarchical != 1 || in_two) return "";
    return "Tensors on GPUs are reduced by " + library +
           " between all ranks at once, although two levels are asked for "
           "(HOROVOD_HIERARCHICAL_ALLREDUCE or HOROVOD_TORUS_ALLREDUCE): " +
           way.why_not_inside + ".";
  }
  if (const std::string done = in_two ? InTwoLevels(batch) : ""; !done.empty()) {
    return "Tensors on GPUs are " + done + " by " + library +
           " inside each host only, and through pinned memory between the hosts; "
           "other collectives copy them to pinned memory and back. " +
           library + " cannot move them between all ranks: " + way.why_not_nccl + ".";
  }
  return "Tensors on GPUs are copied to pinned host memory and back for every collective, and not moved by " + library +
         ": " + way.why_not_nccl + ". Results are correct; expect the speed of the PCIe bus.";
}

}  // namespace

Task GpuIntroducer::Introduce(Group& group, const Batch& batch) {
  if (group.size() == 1) {
    const std::string nobody = "there is no other member";
    group.device_way = std::make_shared<DeviceWay>(DeviceWay{nobody, nobody});
    co_return Status();
  }
  const DeviceFacts own = Own(group, batch);
  std::vector<std::byte> received;
  HVD_CO_TRY(co_await TellAll(*host_, group, batch.seq, std::as_bytes(std::span(&own, 1)), &received));
  std::vector<DeviceFacts> facts(group.size());
  std::memcpy(facts.data(), received.data(), facts.size() * sizeof(DeviceFacts));
  auto way = std::make_shared<DeviceWay>(Conclude(facts, group));
  // Once, however often they are introduced again.
  const bool news = group.device_way == nullptr || group.device_way->why_not_nccl != way->why_not_nccl;
  if (const std::string words = Words(*way, batch); group.index == 0 && news && !words.empty())
    Log(LogLevel::kWarning, words);
  group.device_way = std::move(way);
  co_return Status();
}

void GpuIntroducer::SetFacts(Facts facts) {
  std::lock_guard<std::mutex> lock(mutex_);
  facts_ = std::move(facts);
}

// For this batch: a rank that had no device when it came takes part with the host's memory.
DeviceFacts GpuIntroducer::Own(const Group& group, const Batch& batch) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto lies_there = [](const collective::Tensor& t) { return t.device != nullptr; };
  if (facts_ && std::all_of(batch.tensors.begin(), batch.tensors.end(), lies_there)) return facts_(group);
  DeviceFacts none;
  none.no_device_yet = 1;
  none.SetWhyNot("it has joined, or has no tensor on a GPU yet");
  return none;
}

}  // namespace hvd::backend
