#include "backend/introducer.h"

#include <cstring>
#include <utility>

#include "backend/talk.h"
#include "base/log.h"

namespace hvd::backend {

Task GpuIntroducer::Introduce(Group& group, uint64_t seq) {
  if (group.size() == 1) {
    group.device_way = std::make_shared<DeviceWay>(DeviceWay{"there is nobody to exchange anything with", {}});
    co_return Status();
  }
  const DeviceFacts own = Own(group.index == 0);
  std::vector<std::byte> told;
  HVD_CO_TRY(co_await TellAll(*host_, group, seq, std::as_bytes(std::span(&own, 1)), &told));
  std::vector<DeviceFacts> facts(group.size());
  std::memcpy(facts.data(), told.data(), facts.size() * sizeof(DeviceFacts));
  auto way = std::make_shared<DeviceWay>(Conclude(facts, group.ranks));
  if (!way->why_not_nccl.empty() && group.index == 0) {
    Log(LogLevel::kWarning,
        "Tensors on GPUs are copied to pinned host memory and back for every collective, because "
        "NCCL cannot move them: " +
            way->why_not_nccl + ". Results are correct; expect the speed of the PCIe bus.");
  }
  group.device_way = std::move(way);
  co_return Status();
}

void GpuIntroducer::SetFacts(Facts facts) {
  std::lock_guard<std::mutex> lock(mutex_);
  facts_ = std::move(facts);
}

DeviceFacts GpuIntroducer::Own(bool first) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (facts_) return facts_(first);
  DeviceFacts none;
  none.SetWhyNot("it has joined, or has no tensor on a GPU yet");
  return none;
}

}  // namespace hvd::backend
