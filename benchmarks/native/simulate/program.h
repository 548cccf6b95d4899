// Program: what one rank does in a collective, in the order in which the engine's coroutines do it. The plans are those
// of collective/channels/schedule.h, the slices and owners those of collective/hosts; nothing here decides anything.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/channels/schedule.h"
#include "costs.h"

namespace hvd::simulate {

struct Step {
  enum Kind { kInside, kBegin, kAwait };
  Kind kind = kAwait;
  double inside_s = 0;                                 // kInside: of every rank of the host
  std::function<collective::channels::Plan()> plan{};  // kBegin: made when it begins
  std::shared_ptr<const std::vector<int>> team{};      // its positions' ranks
  size_t unit_bytes = 1;
};
using Program = std::vector<Step>;
using Team = std::shared_ptr<const std::vector<int>>;

inline constexpr size_t kUnit = 4;       // float32
inline constexpr size_t kSizeBytes = 8;  // of the number of rows that goes ahead

inline Step Inside(double seconds) { return {Step::kInside, seconds}; }
inline Step Begin(Team team, size_t unit_bytes, std::function<collective::channels::Plan()> plan) {
  return {Step::kBegin, 0, std::move(plan), std::move(team), unit_bytes};
}
inline Step Await() { return {}; }

// n parts, and where n of so many bytes begin, the end behind them.
std::vector<collective::channels::Range> EqualBlocks(size_t units, int n);
std::vector<size_t> EqualStarts(size_t bytes, int n);

// "allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "barrier"
const std::vector<std::string>& Operations();

// bytes: of a rank's input. two_level: where the engine works in two levels, see two_level.h.
Program ProgramOf(const std::string& operation, size_t bytes, const Layout& layout, int rank, bool two_level,
                  const Costs& costs);

}  // namespace hvd::simulate
