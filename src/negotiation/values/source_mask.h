// Masks of sources (tree.h): bit s % 64 of word s / 64 stands for source s. Everything inline: the hot path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "negotiation/values/tree.h"

namespace hvd::negotiation {

using SourceMask = std::vector<uint64_t>;

inline int MaskWords(const Place& place) { return (place.sources() + 63) / 64; }
inline bool HasSource(const uint64_t* mask, int source) { return (mask[source >> 6] >> (source & 63) & 1) != 0; }
inline bool HasSource(const SourceMask& mask, int source) { return HasSource(mask.data(), source); }
inline void AddSource(uint64_t* mask, int source) { mask[source >> 6] |= uint64_t{1} << (source & 63); }
inline void DropSource(SourceMask* mask, int source) { (*mask)[source >> 6] &= ~(uint64_t{1} << (source & 63)); }
inline bool Covers(const uint64_t* mask, const SourceMask& need) {
  for (size_t w = 0; w < need.size(); ++w) {
    if ((mask[w] & need[w]) != need[w]) return false;
  }
  return true;
}

}  // namespace hvd::negotiation
