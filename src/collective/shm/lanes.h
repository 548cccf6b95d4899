// A piece of a stage divided into one lane per destination, for alltoall and reducescatter over shared memory: every
// round carries something for every receiver, so that none waits for the parts of the others to pass.
#pragma once

#include <cstddef>

#include "collective/shm/steps.h"

namespace hvd::collective::shm {

class Lanes {
 public:
  explicit Lanes(int n) : bytes_(n > 1 ? kPieceBytes / (n - 1) / kShareAlign * kShareAlign : kPieceBytes) {}
  size_t bytes() const { return bytes_; }
  // Where the lane from `source` to `destination` begins in a piece. A rank has no lane to itself.
  size_t offset(int source, int destination) const {
    return bytes_ * (destination < source ? destination : destination - 1);
  }
  size_t rounds(size_t longest) const { return (longest + bytes_ - 1) / bytes_; }
  // The part of `total` bytes that round c carries.
  size_t begin(size_t total, size_t c) const { return c * bytes_ < total ? c * bytes_ : total; }
  size_t end(size_t total, size_t c) const { return begin(total, c + 1); }

 private:
  size_t bytes_;
};

}  // namespace hvd::collective::shm
