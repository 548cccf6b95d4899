#include "negotiation/stall.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "negotiation/signature.h"

namespace hvd {
namespace {

constexpr size_t kMaxAsked = 256;  // the oldest first
constexpr size_t kMaxNames = 6;    // told per rank
constexpr size_t kMaxLines = 32;

std::string Seconds(double s) { return std::to_string(static_cast<long long>(std::floor(s + 1e-9))) + " s"; }

std::string Hosts(const RankSet& ranks, const std::vector<std::string>& host_of_rank) {
  std::vector<std::string> seen;
  for (int r : ranks.ToVector()) {
    if (r >= static_cast<int>(host_of_rank.size()) || host_of_rank[r].empty()) continue;
    if (std::find(seen.begin(), seen.end(), host_of_rank[r]) != seen.end()) continue;
    if (seen.size() == 4) {
      seen.push_back("...");
      break;
    }
    seen.push_back(host_of_rank[r]);
  }
  std::string out;
  for (const std::string& host : seen) out += (out.empty() ? " (" : ", ") + host;
  return out.empty() ? out : out + ")";
}

}  // namespace

std::vector<StalledTally> StallInspector::Old(const std::vector<StalledTally>& incomplete, double now) {
  std::vector<StalledTally> old;
  scan_at_ = kNever;
  for (const StalledTally& t : incomplete) {
    double next = t.since + rules_.warning_s;
    if (next <= now) {
      old.push_back(t);
      next = now + rules_.warning_s;
      if (rules_.shutdown_s > 0 && t.since + rules_.shutdown_s > now)
        next = std::min(next, t.since + rules_.shutdown_s);
    }
    scan_at_ = std::min(scan_at_, next);
  }
  std::sort(old.begin(), old.end(), [](const StalledTally& a, const StalledTally& b) {
    return a.since != b.since ? a.since < b.since : a.name < b.name;
  });
  if (old.size() > kMaxAsked) old.resize(kMaxAsked);
  return old;
}

bool StallInspector::Notice(StalledTally tally, double now) {
  if (!rules_.enabled || notices_.size() >= kMaxAsked) return false;
  const bool final = rules_.shutdown_s > 0 && now - tally.since >= rules_.shutdown_s;
  for (const auto& [key, when] : told_) {
    if (!final && key.set == tally.process_set && key.name == tally.name && now - when < 0.9 * rules_.warning_s)
      return false;
  }
  notices_.push_back(std::move(tally));
  // Wait a moment: the notices of one stall come from several nodes at about the same time.
  scan_at_ = std::min(scan_at_, now + std::min(0.25, rules_.warning_s / 20));
  return true;
}

bool StallInspector::BeginQuery(std::vector<StalledTally> own, double now) {
  if (querying_) return false;
  for (StalledTally& n : notices_) {
    auto same = [&](const StalledTally& t) { return t.process_set == n.process_set && t.name == n.name; };
    auto it = std::find_if(own.begin(), own.end(), same);
    if (it == own.end()) {
      own.push_back(std::move(n));
    } else {
      it->since = std::min(it->since, n.since);
    }
  }
  notices_.clear();
  if (own.empty()) return false;
  asked_ = std::move(own);
  std::erase_if(told_, [&](const auto& t) { return now - t.second >= 0.9 * rules_.warning_s; });
  for (const StalledTally& t : asked_) told_.push_back({NameKey{t.process_set, t.name}, now});
  answers_.clear();
  querying_ = true;
  ++number_;
  answer_by_ = now + patience_s();
  return true;
}

void StallInspector::Answer(uint64_t number, int rank, std::vector<StallState> states) {
  if (!querying_ || number != number_ || states.size() != asked_.size()) return;
  answers_[rank] = std::move(states);
}

StallInspector::Missing StallInspector::Find(size_t index) const {
  Missing found;
  std::vector<int> visit = {0};
  while (!visit.empty()) {
    const int rank = visit.back();
    visit.pop_back();
    auto it = answers_.find(rank);
    if (it == answers_.end()) {
      found.silent.Add(rank);
      continue;
    }
    const StallState& s = it->second[index];
    found.present |= s.present;
    if (s.own_missing) found.ranks.Add(rank);
    for (int child : s.missing) {
      if (child > rank) visit.push_back(child);  // a parent's rank is lower: this ends, whatever an answer says
    }
  }
  return found;
}

bool StallInspector::AllAnswered() const {
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (!Find(i).silent.empty()) return false;
  }
  return true;
}

StallInspector::Report StallInspector::EndQuery(double now, const std::vector<std::string>& host_of_rank) {
  querying_ = false;
  std::map<std::pair<bool, int>, std::vector<size_t>> waited_for;  // (silent, rank) -> tallies
  Report report;
  size_t n = 0;
  for (size_t i = 0; i < asked_.size(); ++i) {
    const Missing m = Find(i);
    if (m.silent.empty() && (!m.present || m.ranks.empty())) continue;  // resolved meanwhile
    ++n;
    for (int r : m.silent.ToVector()) waited_for[{true, r}].push_back(i);
    for (int r : m.ranks.ToVector()) waited_for[{false, r}].push_back(i);
    if (rules_.shutdown_s > 0 && now - asked_[i].since >= rules_.shutdown_s && report.shutdown.empty()) {
      RankSet all = m.ranks;
      all.AddAll(m.silent);
      report.shutdown = Subject(asked_[i].type, asked_[i].name, asked_[i].process_set) + ": " + all.Text() +
                        Hosts(all, host_of_rank) + " did not submit it within " + Seconds(rules_.shutdown_s) +
                        " (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS) after the first rank did";
    }
  }
  if (n == 0) return report;
  std::map<std::pair<bool, std::vector<size_t>>, RankSet> lines;  // equal lists on one line
  for (auto& [who, tallies] : waited_for) lines[{who.first, tallies}].Add(who.second);
  report.text = std::to_string(n) + (n == 1 ? " operation waits" : " operations wait") +
                " for ranks that have not submitted " + (n == 1 ? "it" : "them") + " for more than " +
                Seconds(rules_.warning_s) +
                ". All members must submit the same operations; look at what these ranks do:";
  size_t told = 0;
  for (const auto& [what, ranks] : lines) {
    if (told++ == kMaxLines) {
      report.text += "\n  ... and " + std::to_string(lines.size() - kMaxLines) + " more lines";
      break;
    }
    bool over = false;
    const std::string names = Names(what.second, now, &over);
    const char* const silent = what.first ? "no answer (stopped?); " : "";
    report.text += "\n  " + ranks.Text() + (over ? "!" : "") + Hosts(ranks, host_of_rank) + ": " + silent + names;
  }
  return report;
}

std::string StallInspector::Names(const std::vector<size_t>& tallies, double now, bool* over) const {
  std::string names;
  for (size_t k = 0; k < tallies.size(); ++k) {
    const StalledTally& t = asked_[tallies[k]];
    *over |= rules_.shutdown_s > 0 && now - t.since >= rules_.shutdown_s;
    if (k == kMaxNames) names += ", ...";
    if (k >= kMaxNames) continue;
    names += (k > 0 ? ", " : "") + Subject(t.type, t.name, t.process_set) + " " + Seconds(now - t.since);
  }
  return names;
}

}  // namespace hvd
