// Nics: the links of the hosts. A message takes its turn behind the others that leave its host, and then behind those
// that come to the other one; between the two lies the hop. Messages are segments of at most 256 KB, so that the flows
// of a host share its link evenly enough. A link that a shaper makes slow lets a burst pass after a pause, as its token
// bucket is full then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hvd::simulate {

class Nics {
 public:
  Nics(int hosts, double bytes_per_s, double burst_bytes)
      : bytes_per_s_(bytes_per_s), burst_s_(burst_bytes / bytes_per_s), out_(hosts), in_(hosts) {}

  // When its first byte leaves.
  double Leave(int host, double now, double bytes) {
    Direction& way = out_[host];
    const double begin = std::max(now, way.free_at - burst_s_);
    way.Take(now, bytes / bytes_per_s_, bytes);
    return begin;
  }
  // When its last byte has arrived, of which the first one comes now.
  double Arrive(int host, double now, double bytes) {
    return std::max(now, in_[host].Take(now, bytes / bytes_per_s_, bytes) - burst_s_);
  }
  // Of the busiest direction of a link.
  double MostBytes() const {
    double most = 0;
    for (const std::vector<Direction>* ways : {&out_, &in_}) {
      for (const Direction& way : *ways) most = std::max(most, way.bytes);
    }
    return most;
  }

 private:
  struct Direction {
    double free_at = 0, bytes = 0;
    // When all of it is through, at the link's rate.
    double Take(double now, double seconds, double size) {
      free_at = std::max(now, free_at) + seconds;
      bytes += size;
      return free_at;
    }
  };
  double bytes_per_s_, burst_s_;
  std::vector<Direction> out_, in_;
};

}  // namespace hvd::simulate
