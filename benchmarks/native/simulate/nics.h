// Nics: the links of the hosts. A message takes its turn behind the others that leave its host, and then behind those
// that come to the other one; between the two lies the hop. Messages are segments of at most 256 KB, so that the flows
// of a host share its link evenly enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hvd::simulate {

class Nics {
 public:
  Nics(int hosts, double bytes_per_s) : bytes_per_s_(bytes_per_s), out_(hosts), in_(hosts) {}

  // When its first byte leaves.
  double Leave(int host, double now, double bytes) { return out_[host].Take(now, bytes / bytes_per_s_, bytes); }
  // When its last byte has arrived, of which the first one comes now.
  double Arrive(int host, double now, double bytes) {
    const double seconds = bytes / bytes_per_s_;
    return in_[host].Take(now, seconds, bytes) + seconds;
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
    double Take(double now, double seconds, double size) {
      const double begin = std::max(now, free_at);
      free_at = begin + seconds;
      bytes += size;
      return begin;
    }
  };
  double bytes_per_s_;
  std::vector<Direction> out_, in_;
};

}  // namespace hvd::simulate
