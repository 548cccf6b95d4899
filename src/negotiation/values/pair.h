// Pair: two ranks, one of which sends to the other, and the names of what goes between them. The negotiation knows one
// name for each pair of a process set, under which both make one request: the n-th send of the one meets the n-th recv
// of the other. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "negotiation/values/rank_set.h"

namespace hvd::negotiation {

struct Pair {
  int32_t from = 0, to = 0;  // global ranks
  RankSet ranks() const { return RankSet::FromUnsorted({from, to}); }
};

// "send 0->1": what is negotiated. No tensor is called so.
std::string PairName(const Pair& pair);
// Nothing: it is no such name.
std::optional<Pair> ReadPair(std::string_view name);
// The same. Every request is asked several times, and few are sends.
inline std::optional<Pair> PairOf(std::string_view name) {
  return name.starts_with("send ") ? ReadPair(name) : std::nullopt;
}

// "recv 0->1 #3 gradients": what a rank calls its own part, unlike every other of its parts. label: the user's, or "".
std::string OwnName(OpType type, const Pair& pair, uint64_t number, std::string_view label);
// Of either kind of names, read: "recv #3 from rank 0 to rank 1 ('gradients')", "send from rank 0 to rank 1". Empty: it
// is neither.
std::string PairText(std::string_view name);
// Of an own name; nothing: it is none.
std::optional<Pair> RanksOf(std::string_view own_name);
// The parts of an own name that both ranks have alike: "0->1 #3". Empty: it is none.
std::string_view SharedPart(std::string_view own_name);

}  // namespace hvd::negotiation
