// An average is a sum and a factor.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace hvd {

// The factor that turns a sum over n members into their average, for this type: for integers the smallest double that
// is not below 1/n, so that k*n becomes exactly k after truncation.
inline double AverageFactor(DType dtype, int n) {
  const double factor = 1.0 / n;
  return IsFloat(dtype) || n == 1 ? factor : std::nextafter(factor, 1.0);
}

// The n of which AverageFactor made this factor of an integer type; 0 for a factor that is none.
inline int64_t DivisorOf(double factor) {
  const double n = std::round(1.0 / factor);
  return n > 1 && n <= INT32_MAX && AverageFactor(DType::kInt64, static_cast<int>(n)) == factor
             ? static_cast<int64_t>(n)
             : 0;
}

}  // namespace hvd
