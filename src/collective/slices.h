// Slices: how a two-level collective cuts its vector, so that one slice travels between the hosts while another is
// combined or shared inside them. Pure.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hvd::collective {

// Into how many slices, where one owner drives so many bytes: large ones for the network, small ones so that slices
// overlap and stay in a shared cache.
inline size_t SlicesFor(size_t owner_bytes) {
  constexpr size_t kSmallest = 256 << 10, kLargest = 4 << 20, kFewest = 4;
  const size_t slice = std::clamp(owner_bytes / kFewest, kSmallest, kLargest);
  return std::max<size_t>(1, (owner_bytes + slice - 1) / slice);
}

}  // namespace hvd::collective
