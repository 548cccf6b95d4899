// Program: what one rank does in a collective, in the order in which the engine's coroutines do it. The plans are those
// of collective/channels/schedule.h, the slices those of the two-level allreduce; nothing here decides anything.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
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

// "allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "barrier"
const std::vector<std::string>& Operations();

// bytes: of a rank's input. two_level: allreduce only.
Program ProgramOf(const std::string& operation, size_t bytes, const Layout& layout, int rank, bool two_level,
                  const Costs& costs);

}  // namespace hvd::simulate
