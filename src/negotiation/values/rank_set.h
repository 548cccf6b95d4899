// RankSet: a set of ranks as ascending, disjoint, non-adjacent spans, small for what occurs (subtrees, process sets,
// "who sent this"). Used by tallies, messages and the wire. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hvd::negotiation {

class RankSet {
 public:
  using Span = std::pair<int32_t, int32_t>;  // first, last (inclusive)

  RankSet() = default;
  static RankSet Of(int rank) { return Range(rank, rank); }
  static RankSet Range(int first, int last);
  static RankSet FromUnsorted(std::vector<int> ranks);

  bool empty() const { return spans_.empty(); }
  int count() const;
  int first() const { return spans_.front().first; }  // not of an empty set
  bool Contains(int rank) const;
  void Add(int rank) { AddAll(Of(rank)); }
  void Append(int first, int last);  // first > every rank in the set
  void AddAll(const RankSet& other);
  RankSet And(const RankSet& other) const;
  RankSet Minus(const RankSet& other) const;
  std::vector<int> ToVector() const;
  const std::vector<Span>& spans() const { return spans_; }
  // "rank 3", "ranks 1-3, 7"; after 12 spans "...".
  std::string Text() const;
  bool operator==(const RankSet&) const = default;

 private:
  std::vector<Span> spans_;
};

}  // namespace hvd::negotiation
