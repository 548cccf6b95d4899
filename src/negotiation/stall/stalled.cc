#include "negotiation/stall/stalled.h"

#include <cmath>
#include <cstdio>

#include "negotiation/values/op_text.h"
#include "negotiation/values/pair.h"

namespace hvd::negotiation {

std::string StalledTally::Text() const { return Subject(type, key.name, key.set); }

std::string StalledTally::PartOf(const RankSet& ranks) const {
  const std::optional<Pair> pair = PairOf(key.name);
  if (!pair || ranks.count() != 1 || !pair->ranks().Contains(ranks.first())) return Text();
  const bool sends = ranks.first() == pair->from;
  const std::string other = std::to_string(sends ? pair->to : pair->from);
  return (sends ? "send to rank " : "recv from rank ") + other + InSet(key.set);
}

std::string SecondsText(double s) {
  const int digits = s < 1 ? 2 : s < 10 ? 1 : 0;
  const double unit = std::pow(10, digits);
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, std::floor(s * unit + 1e-6) / unit);
  std::string out = text;
  if (digits > 0) out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out + " s";
}

}  // namespace hvd::negotiation
