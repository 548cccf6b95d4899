#include "negotiation/values/new_set.h"

#include <charconv>
#include <cstdint>

namespace hvd::negotiation {
namespace {

constexpr std::string_view kPrefix = "\x01members.";

// Ascending ranks after the prefix; empty: there is something else.
RankSet ReadMembers(std::string_view name) {
  const char* at = name.data() + kPrefix.size();
  const char* const end = name.data() + name.size();
  RankSet members;
  int32_t last = -1;
  while (true) {
    int32_t rank = 0;
    const auto [next, error] = std::from_chars(at, end, rank);
    if (error != std::errc() || rank <= last) return {};
    members.Append(rank, rank);
    last = rank;
    if (next == end) return members;
    if (*next != ',') return {};
    at = next + 1;
  }
}

}  // namespace

std::string NameOfNewSet(const std::vector<int>& ranks) {
  std::string name(kPrefix);
  for (const int rank : ranks) {
    if (name.size() > kPrefix.size()) name += ',';
    name += std::to_string(rank);
  }
  return name;
}

bool NamesNewSet(std::string_view name) { return name.starts_with(kPrefix); }

RankSet MembersOfNewSet(std::string_view name) {
  if (!NamesNewSet(name)) return {};
  const RankSet members = ReadMembers(name);
  return NameOfNewSet(members.ToVector()) == name ? members : RankSet();  // "-0" and "01" are read, too
}

}  // namespace hvd::negotiation
