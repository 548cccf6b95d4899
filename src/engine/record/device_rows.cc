#include "engine/record/device_rows.h"

#include <algorithm>

#include "engine/record/trace_event.h"

namespace hvd::engine {

void DeviceRows::Add(Followed batch) {
  if (std::erase_if(batch.tensors, IsUnnamed) > 0) batch.tensors.push_back("unnamed");
  waiting_.push_back(std::move(batch));
}

// The clocks are compared when what is shown has been: see Clock (backend/cuda/clock.h).
std::vector<DeviceRows::Shown> DeviceRows::TakeEnded() {
  const auto ended = std::stable_partition(waiting_.begin(), waiting_.end(),
                                           [](const Followed& batch) { return !batch.phases->Ended(); });
  std::map<DeviceClock*, bool> compared;
  std::vector<Shown> shown;
  const auto kept = std::stable_partition(ended, waiting_.end(), [&](const Followed& batch) {
    DeviceClock* const clock = &batch.phases->clock();
    const auto [found, is_new] = compared.try_emplace(clock, false);
    if (is_new) found->second = clock->Compare().ok();
    if (found->second) Show(batch, &shown);
    return !found->second;
  });
  waiting_.erase(kept, waiting_.end());
  return shown;
}

void DeviceRows::Show(const Followed& batch, std::vector<Shown>* shown) {
  for (const Span& span : batch.phases->Spans()) {
    for (const std::string& tensor : batch.tensors) ShowSpan(tensor, span, shown);
  }
}

// A stream does one thing after another. Only waiting for the stream begins earlier, when the host put the work there:
// while it still works for the same tensor, that is not shown.
void DeviceRows::ShowSpan(const std::string& tensor, Span span, std::vector<Shown>* shown) {
  const int row = rows_.emplace(span.stream, static_cast<int>(rows_.size()) + 1).first->second;
  if (span.begin_s < from_s_) return;
  const auto [filled_to, is_new] = filled_to_.try_emplace({tensor, row}, from_s_);
  span.begin_s = std::max(span.begin_s, filled_to->second);
  span.end_s = std::max(span.end_s, span.begin_s);
  filled_to->second = span.end_s;
  const std::string name = span.stream == nullptr ? "host" : "GPU stream " + std::to_string(row - 1);
  shown->push_back({tensor, std::move(span), row, is_new ? name : ""});
}

}  // namespace hvd::engine
