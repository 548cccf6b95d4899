// The reductions that tests go through.
#pragma once

#include <vector>

#include "base/dtype.h"

namespace hvd::test {

// All that combine element by element. Average is a sum by then.
inline const std::vector<ReduceOp>& ElementwiseOps() {
  static const auto* const kAll = [] {
    auto* const all = new std::vector<ReduceOp>();
    for (int i = 0; i < kReduceOpCount; ++i) {
      const auto op = static_cast<ReduceOp>(i);
      if (op != ReduceOp::kAverage && op != ReduceOp::kAdasum) all->push_back(op);
    }
    return all;
  }();
  return *kAll;
}

}  // namespace hvd::test
