// The header of a message between two members of a collective over channels: 32 bytes, in the byte order of both.
#pragma once

#include <cstdint>

namespace hvd::collective::channels {

inline constexpr uint32_t kMagic = 0x44564831;  // also tells byte orders apart

struct Fields {
  uint32_t magic = kMagic, phase = 0;
  uint64_t seq = 0;
  uint32_t step = 0, segment = 0;
  uint64_t bytes = 0;
};

// Belongs to no batch: seq is its number on the connection (ahead.h).
inline constexpr uint32_t kAheadPhase = 5;
inline bool IsAhead(const Fields& f) { return f.magic == kMagic && f.phase == kAheadPhase; }

}  // namespace hvd::collective::channels
