// ClockOffset: how much another host's clock is ahead of this one's, from messages in both directions that carry their
// sender's clock: receiver's clock minus sender's is the delay plus the offset one way, the delay minus the offset the
// other way. The smallest differences have the least delay. Only the last few count, for clocks drift. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace hvd::engine {

class ClockOffset {
 public:
  static constexpr size_t kLast = 8;

  // down_s: of a message to the other host; up_s: of its answer.
  void Add(double down_s, double up_s) {
    down_[n_ % kLast] = down_s;
    up_[n_ % kLast] = up_s;
    ++n_;
  }
  bool known() const { return n_ > 0; }
  double offset_s() const { return (Least(down_) - Least(up_)) / 2; }
  // The offset is at most that far from the true one, however unlike the two ways are, but for drift.
  double error_s() const { return std::max((Least(down_) + Least(up_)) / 2, 0.0); }

 private:
  using Last = std::array<double, kLast>;
  double Least(const Last& last) const {
    return *std::min_element(last.begin(), last.begin() + static_cast<ptrdiff_t>(std::min(n_, kLast)));
  }
  Last down_ = {}, up_ = {};
  size_t n_ = 0;
};

}  // namespace hvd::engine
