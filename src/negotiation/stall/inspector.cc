#include "negotiation/stall/inspector.h"

namespace hvd::negotiation {
namespace {

constexpr size_t kMaxAsked = 256;        // the oldest first
constexpr double kAskedLately = 0.9;     // of the warning time
constexpr double kMostGathering = 0.25;  // seconds

}  // namespace

std::vector<StalledTally> StallInspector::Old(const std::vector<StalledTally>& incomplete, double now) {
  std::vector<StalledTally> old;
  scan_at_ = kNever;
  for (const StalledTally& t : incomplete) {
    double next = t.since + rules_.warning_s;
    if (next <= now) {
      old.push_back(t);
      next = now + rules_.warning_s;
      if (rules_.over_at(t.since) > now) next = std::min(next, rules_.over_at(t.since));
    }
    ScanBy(next);
  }
  std::sort(old.begin(), old.end(), [](const StalledTally& a, const StalledTally& b) {
    return a.since != b.since ? a.since < b.since : a.key.name < b.key.name;
  });
  if (old.size() > kMaxAsked) old.resize(kMaxAsked);
  return old;
}

bool StallInspector::Notice(StalledTally tally, double now) {
  if (!rules_.enabled() || notices_.size() >= kMaxAsked) return false;
  const bool over = now >= rules_.over_at(tally.since);
  for (const auto& [key, when] : asked_) {
    if (!over && NameEqual()(key, tally.key) && now - when < kAskedLately * rules_.warning_s) return false;
  }
  notices_.push_back(std::move(tally));
  // Wait a moment: the notices of one stall come from several nodes at about the same time.
  ScanBy(now + std::min(kMostGathering, rules_.warning_s / 20));
  return true;
}

std::vector<StalledTally> StallInspector::TakeQuestion(std::vector<StalledTally> old, double now) {
  for (StalledTally& n : std::exchange(notices_, {})) {
    const auto it =
        std::find_if(old.begin(), old.end(), [&](const StalledTally& t) { return NameEqual()(t.key, n.key); });
    if (it == old.end()) {
      old.push_back(std::move(n));
    } else {
      it->since = std::min(it->since, n.since);
    }
  }
  std::erase_if(asked_, [&](const auto& a) { return now - a.second >= kAskedLately * rules_.warning_s; });
  for (const StalledTally& t : old) asked_.push_back({t.key, now});
  return old;
}

}  // namespace hvd::negotiation
