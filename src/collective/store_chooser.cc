#include "collective/store_chooser.h"

#include <bit>

namespace hvd {
namespace {
// Ordinary stores must win clearly: where the caches are shared the two are close, where not they lose by a factor.
constexpr double kClearly = 0.97;
}  // namespace

StoreChooser::Class& StoreChooser::ClassOf(Use use, size_t bytes) {
  return classes_[static_cast<int>(use)][std::bit_width(bytes) % kClasses];
}

StoreMode StoreChooser::Decide(Use use, size_t bytes) {
  if (setting_ == Setting::kOrdinary) return StoreMode::kOrdinary;
  if (setting_ == Setting::kStreaming) return StoreMode::kStreaming;
  if (bytes < kMeasuredBytes) return StoreMode::kOrdinary;
  Class& c = ClassOf(use, bytes);
  const uint32_t place = c.batches++ % kPeriod;
  if (place == 0) c.best[0] = c.best[1] = 0;
  if (place >= TrialsOf(c)) return c.chosen;
  // In a row, not in turns: streaming stores leave the slots in memory, and the first ordinary batch after them pays
  // for that.
  return place < TrialsOf(c) / 2 ? StoreMode::kStreaming : StoreMode::kOrdinary;
}

void StoreChooser::Record(Use use, size_t bytes, StoreMode mode, double elapsed_ns) {
  if (setting_ != Setting::kMeasure || bytes < kMeasuredBytes || elapsed_ns <= 0) return;
  Class& c = ClassOf(use, bytes);
  if (c.batches == 0) return;
  const uint32_t place = (c.batches - 1) % kPeriod;
  if (place >= TrialsOf(c)) return;
  double& best = c.best[static_cast<int>(mode)];
  const double cost = elapsed_ns / static_cast<double>(bytes);
  if (best == 0 || cost < best) best = cost;
  if (place + 1 < TrialsOf(c)) return;
  const double ordinary = c.best[static_cast<int>(StoreMode::kOrdinary)];
  const double streaming = c.best[static_cast<int>(StoreMode::kStreaming)];
  if (ordinary > 0 && streaming > 0) {
    c.chosen = ordinary < kClearly * streaming ? StoreMode::kOrdinary : StoreMode::kStreaming;
  }
  c.settled = true;
}

StoreMode StoreChooser::Learned(size_t bytes) const {
  if (setting_ == Setting::kOrdinary) return StoreMode::kOrdinary;
  if (setting_ == Setting::kStreaming) return StoreMode::kStreaming;
  if (bytes < kMeasuredBytes) return StoreMode::kOrdinary;
  return classes_[static_cast<int>(Use::kAllreduce)][std::bit_width(bytes) % kClasses].chosen;
}

}  // namespace hvd
