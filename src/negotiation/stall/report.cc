#include "negotiation/stall/report.h"

#include <algorithm>
#include <map>
#include <utility>

namespace hvd::negotiation {
namespace {

constexpr size_t kMaxNames = 6;  // listed per rank
constexpr size_t kMaxLines = 32;

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

// The ranks that operations wait for, and the operations of each: equal lists on one line. First the ranks that
// answered.
using Lines = std::map<std::pair<bool, std::vector<size_t>>, RankSet>;  // (silent, indices of tallies) -> ranks

std::string Names(const RankSet& ranks, const std::vector<StalledTally>& asked, const std::vector<size_t>& tallies,
                  double now) {
  std::string names;
  for (size_t k = 0; k < tallies.size(); ++k) {
    const StalledTally& t = asked[tallies[k]];
    if (k == kMaxNames) return names + ", ...";
    names += (k > 0 ? ", " : "") + t.PartOf(ranks) + " (" + SecondsText(now - t.since) + ")";
  }
  return names;
}

std::string Headline(size_t n, bool pairs_only, double warning_s) {
  return std::to_string(n) + (n == 1 ? " operation has" : " operations have") + " waited for more than " +
         SecondsText(warning_s) + " for ranks that have not submitted " + (n == 1 ? "it" : "them") +
         (pairs_only
              ? "; a send and its recv wait for each other, so that two ranks which both send first wait for ever."
              : "; all members of a process set must submit the same operations.") +
         " Look at what these ranks do:";
}

std::string Shutdown(const StalledTally& t, const StallQuery::Missing& missing, double shutdown_s,
                     const std::vector<std::string>& host_of_rank) {
  RankSet all = missing.ranks;
  all.AddAll(missing.silent);
  return t.Text() + ": " + all.Text() + Hosts(all, host_of_rank) + " did not submit it within " +
         SecondsText(shutdown_s) + " (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS) after the first rank did";
}

}  // namespace

StallReport WriteStallReport(const StallQuery& query, const StallRules& rules,
                             const std::vector<std::string>& host_of_rank, double now) {
  now = std::max(now, query.begun_at());
  const std::vector<StalledTally>& asked = query.asked();
  std::map<std::pair<bool, int>, std::vector<size_t>> waited_for;  // (silent, rank) -> tallies
  StallReport report;
  size_t n = 0, pairs = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    const StallQuery::Missing missing = query.Find(i);
    if (!missing.waits()) continue;  // resolved meanwhile
    ++n;
    pairs += asked[i].joins_a_pair() ? 1 : 0;
    for (int r : missing.silent.ToVector()) waited_for[{true, r}].push_back(i);
    for (int r : missing.ranks.ToVector()) waited_for[{false, r}].push_back(i);
    if (report.shutdown.empty() && now >= rules.over_at(asked[i].since)) {
      report.shutdown = Shutdown(asked[i], missing, rules.shutdown_s, host_of_rank);
    }
  }
  if (n == 0) return report;
  Lines lines;
  for (auto& [who, tallies] : waited_for) lines[{who.first, tallies}].Add(who.second);
  report.text = Headline(n, n == pairs, rules.warning_s);
  size_t listed = 0;
  for (const auto& [what, ranks] : lines) {
    if (listed++ == kMaxLines) {
      report.text += "\n  ... and " + std::to_string(lines.size() - kMaxLines) + " more lines";
      break;
    }
    const bool one = ranks.count() == 1;
    const char* const silent = one ? " gives no answer (stopped?): " : " give no answer (stopped?): ";
    const char* const missing = one ? " has not submitted: " : " have not submitted: ";
    report.text += "\n  " + ranks.Text() + Hosts(ranks, host_of_rank) + (what.first ? silent : missing) +
                   Names(ranks, asked, what.second, now);
  }
  return report;
}

}  // namespace hvd::negotiation
