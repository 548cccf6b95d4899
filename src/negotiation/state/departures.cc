#include "negotiation/state/departures.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace hvd::negotiation {

void Departures::SelfHasLeft(const std::string& exception) {
  own_left_ = true;
  results_->Add(RankLeft{place_.rank, exception});
}

void Departures::LeaveSelf(const std::string& exception) {
  if (std::exchange(goodbye_, true)) return;
  if (cut_ || abort_->over()) return SelfHasLeft({});
  Announce({place_.rank, exception});
}

Status Departures::FromChild(int source, Leaver leaver) {
  if (!place_.below[source].Contains(leaver.rank)) {
    return {Code::kInternal, "it says goodbye for rank " + std::to_string(leaver.rank) + ", which is not below"};
  }
  Announce(std::move(leaver));
  return {};
}

void Departures::Announce(Leaver leaver) {
  if (place_.root()) {
    leavers_.push_back(std::move(leaver));
    return;
  }
  ByteWriter w = out_->Up(UpRecord::kGoodbye);
  w.Varint(static_cast<uint32_t>(leaver.rank));
  w.Text(leaver.exception);
}

bool Departures::NextLeaver(Leaver* leaver) {
  while (!leavers_.empty()) {
    *leaver = std::move(leavers_.front());
    leavers_.pop_front();
    if (!left_.Contains(leaver->rank)) return true;
  }
  return false;
}

void Departures::Obey(const Leaver& leaver) {
  left_.Add(leaver.rank);
  cut_ |= EndsLog(leaver.rank);
  if (place_.SourceOfNeighbour(leaver.rank) > 0) informed_last_.push_back(leaver.rank);
  if (leaver.rank == place_.rank) return SelfHasLeft(leaver.exception);
  results_->Add(RankLeft{leaver.rank, leaver.exception});
  if (cut_ && goodbye_ && !own_left_) SelfHasLeft({});  // nobody is left to confirm it
}

std::vector<int> Departures::Listeners() const {
  std::vector<int> listeners;
  for (const int child : place_.children) {
    const bool leaves = std::find(informed_last_.begin(), informed_last_.end(), child) != informed_last_.end();
    if (!leaves && !gone_.Contains(child)) listeners.push_back(child);
  }
  listeners.insert(listeners.end(), informed_last_.begin(), informed_last_.end());
  return listeners;
}

void Departures::ListenersInformed() {
  for (const int child : informed_last_) gone_.Add(child);
  informed_last_.clear();
}

void Departures::Lost(int rank, const std::string& reason, double now, double grace_s) {
  lost_.push_back({rank, reason, now + grace_s});
  JudgeLost(now);
}

void Departures::JudgeLost(double now) {
  std::erase_if(lost_, [&](const Death& death) { return abort_->over() || !Matters(death); });
  for (const Death& death : lost_) {
    if (death.abort_at > now) continue;
    return abort_->Raise({Code::kPeerLost, "rank " + std::to_string(death.rank) + " was lost: " + death.reason});
  }
}

double Departures::next_judgement() const {
  double at = std::numeric_limits<double>::infinity();
  for (const Death& death : lost_) {
    if (Matters(death)) at = std::min(at, death.abort_at);
  }
  return at;
}

}  // namespace hvd::negotiation
