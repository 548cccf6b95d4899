#include "collective/stores/chooser.h"

#include <bit>

namespace hvd::collective {
namespace {
// What must win clearly. Into shared memory ordinary stores: where the caches are shared the two are close, where not
// they lose by a factor. Into results streaming ones: they take the results out of the caches.
constexpr double kClearly = 0.97;

bool ForResults(StoreChooser::Use use) { return use >= StoreChooser::Use::kAllreduceResults; }

StoreMode WhenInDoubt(StoreChooser::Use use) { return ForResults(use) ? StoreMode::kOrdinary : StoreMode::kStreaming; }
}  // namespace

StoreChooser::StoreChooser(Setting setting, size_t results_from) : setting_(setting), results_from_(results_from) {
  for (int use = 0; use < kUses; ++use) {
    for (Class& c : classes_[use]) c.chosen = WhenInDoubt(static_cast<Use>(use));
  }
}

StoreChooser::Class& StoreChooser::ClassOf(Use use, size_t bytes) {
  return classes_[static_cast<int>(use)][std::bit_width(bytes) % kClasses];
}

const StoreChooser::Class& StoreChooser::ClassOf(Use use, size_t bytes) const {
  return classes_[static_cast<int>(use)][std::bit_width(bytes) % kClasses];
}

// Results are tried when shared memory of the same batches has been: two things at once would blur each other.
uint32_t StoreChooser::PlaceOf(const Class& c, Use use) {
  return (c.batches - 1 + (ForResults(use) ? kPeriod - kFirstTrials : 0)) % kPeriod;
}

size_t StoreChooser::MeasuredFrom(Use use) const { return ForResults(use) ? results_from_ : kMeasuredBytes; }

StoreMode StoreChooser::Decide(Use use, size_t bytes) {
  if (setting_ == Setting::kOrdinary) return StoreMode::kOrdinary;
  if (setting_ == Setting::kStreaming) return StoreMode::kStreaming;
  if (bytes < MeasuredFrom(use)) return StoreMode::kOrdinary;
  Class& c = ClassOf(use, bytes);
  ++c.batches;
  const uint32_t place = PlaceOf(c, use);
  if (place == 0) c.best[0] = c.best[1] = 0;
  if (place >= TrialsOf(c)) return c.chosen;
  // In a row, not in turns: streaming stores leave the stages in memory, and the first ordinary batch after them pays
  // for that.
  return place < TrialsOf(c) / 2 ? StoreMode::kStreaming : StoreMode::kOrdinary;
}

bool StoreChooser::IsMeasured(Use use, size_t bytes) const {
  if (setting_ != Setting::kMeasure || bytes < MeasuredFrom(use)) return false;
  const Class& c = ClassOf(use, bytes);
  return c.batches > 0 && PlaceOf(c, use) < TrialsOf(c);
}

void StoreChooser::Record(Use use, size_t bytes, StoreMode mode, double elapsed_ns) {
  if (!IsMeasured(use, bytes) || elapsed_ns <= 0) return;
  Class& c = ClassOf(use, bytes);
  double& best = c.best[static_cast<int>(mode)];
  const double cost = elapsed_ns / static_cast<double>(bytes);
  if (best == 0 || cost < best) best = cost;
  if (PlaceOf(c, use) + 1 < TrialsOf(c)) return;
  const StoreMode doubt = WhenInDoubt(use);
  const StoreMode other = doubt == StoreMode::kOrdinary ? StoreMode::kStreaming : StoreMode::kOrdinary;
  const double usual = c.best[static_cast<int>(doubt)], rival = c.best[static_cast<int>(other)];
  if (usual > 0 && rival > 0) c.chosen = rival < kClearly * usual ? other : doubt;
  c.settled = true;
}

StoreMode StoreChooser::Learned(size_t bytes) const {
  if (setting_ == Setting::kOrdinary) return StoreMode::kOrdinary;
  if (setting_ == Setting::kStreaming) return StoreMode::kStreaming;
  if (bytes < kStreamedUnmeasured) return StoreMode::kOrdinary;
  return ClassOf(Use::kAllreduce, bytes).chosen;
}

}  // namespace hvd::collective
