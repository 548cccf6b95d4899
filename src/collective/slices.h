// Slices: how a two-level collective cuts its vector, so that one slice travels between the hosts while another is
// combined or shared inside them. Pure.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hvd::collective {

// The number of slices, where one owner drives this many bytes: large ones for the network, small ones so that slices
// overlap and stay in a shared cache.
inline size_t SlicesFor(size_t owner_bytes) {
  constexpr size_t kSmallest = 256 << 10, kLargest = 4 << 20, kFewest = 4;
  const size_t slice = std::clamp(owner_bytes / kFewest, kSmallest, kLargest);
  return std::max<size_t>(1, (owner_bytes + slice - 1) / slice);
}

// The same for a vector that goes from host to host in a chain (schedule.h): each slice has to fill all of it before
// its last host has anything, so a slice must be worth it.
inline size_t SlicesOfChain(size_t owner_bytes, int hosts) {
  constexpr size_t kPerHost = 128 << 10;
  if (hosts <= 2) return SlicesFor(owner_bytes);
  const size_t most = owner_bytes / (static_cast<size_t>(hosts - 2) * kPerHost);
  return std::clamp<size_t>(most, 1, SlicesFor(owner_bytes));
}

}  // namespace hvd::collective
