#include "negotiation/values/rank_set.h"

#include <algorithm>

namespace hvd::negotiation {

RankSet RankSet::Range(int first, int last) {
  RankSet s;
  if (first <= last) s.spans_.push_back({first, last});
  return s;
}

RankSet RankSet::FromUnsorted(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  RankSet s;
  for (int r : ranks) {
    if (s.empty() || s.spans_.back().second < r) s.Append(r, r);
  }
  return s;
}

int RankSet::count() const {
  int n = 0;
  for (const Span& s : spans_) n += s.second - s.first + 1;
  return n;
}

bool RankSet::Contains(int rank) const {
  auto it = std::upper_bound(spans_.begin(), spans_.end(), rank, [](int r, const Span& s) { return r < s.first; });
  return it != spans_.begin() && std::prev(it)->second >= rank;
}

void RankSet::Append(int first, int last) {
  if (!spans_.empty() && spans_.back().second + 1 == first) {
    spans_.back().second = last;
  } else {
    spans_.push_back({first, last});
  }
}

void RankSet::AddAll(const RankSet& other) {
  if (other.empty()) return;
  if (empty()) {
    spans_ = other.spans_;
    return;
  }
  std::vector<Span> all;
  all.reserve(spans_.size() + other.spans_.size());
  std::merge(spans_.begin(), spans_.end(), other.spans_.begin(), other.spans_.end(), std::back_inserter(all));
  spans_.clear();
  for (const Span& s : all) {
    if (!spans_.empty() && s.first <= spans_.back().second + 1) {
      spans_.back().second = std::max(spans_.back().second, s.second);
    } else {
      spans_.push_back(s);
    }
  }
}

RankSet RankSet::And(const RankSet& other) const {
  RankSet out;
  size_t i = 0, j = 0;
  while (i < spans_.size() && j < other.spans_.size()) {
    const int first = std::max(spans_[i].first, other.spans_[j].first);
    const int last = std::min(spans_[i].second, other.spans_[j].second);
    if (first <= last) out.Append(first, last);
    if (spans_[i].second < other.spans_[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

RankSet RankSet::Minus(const RankSet& other) const {
  RankSet out;
  size_t j = 0;
  for (auto [first, last] : spans_) {
    while (j < other.spans_.size() && other.spans_[j].second < first) ++j;
    for (size_t k = j; k < other.spans_.size() && other.spans_[k].first <= last && first <= last; ++k) {
      if (other.spans_[k].first > first) out.Append(first, other.spans_[k].first - 1);
      first = other.spans_[k].second + 1;
    }
    if (first <= last) out.Append(first, last);
  }
  return out;
}

std::vector<int> RankSet::ToVector() const {
  std::vector<int> out;
  out.reserve(count());
  for (const Span& s : spans_) {
    for (int r = s.first; r <= s.second; ++r) out.push_back(r);
  }
  return out;
}

std::string RankSet::Text() const {
  std::string out = spans_.size() == 1 && spans_[0].first == spans_[0].second ? "rank " : "ranks ";
  for (size_t i = 0; i < spans_.size(); ++i) {
    if (i > 0) out += ", ";
    if (i == 12) return out + "...";
    out += std::to_string(spans_[i].first);
    if (spans_[i].second > spans_[i].first) out += "-" + std::to_string(spans_[i].second);
  }
  return out;
}

}  // namespace hvd::negotiation
