// The packing kernels, as text for a compiler: PTX for that of CUDA's driver, C++ for HIP's. Four of them: pack_bytes,
// which copies, and pack_f32, pack_f16 and pack_bf16, which multiply by the factor, in float32, rounding to nearest
// even.
#pragma once

#include <cstdint>
#include <string>

namespace hvd::backend::cuda {

// What a kernel finds in its parameters: so many of these, then uint32 how many are used, then float the factor.
struct PackEntry {
  uint64_t from, to;
  uint32_t bytes;        // more than 0
  uint32_t first_block;  // of those that move it: each moves kPackChunk, the last one what is left. Ascending
};
static_assert(sizeof(PackEntry) == 24);
// With them the parameters are below the 4,096 bytes that every kernel may have.
inline constexpr int kPackEntries = 168;
inline constexpr unsigned kPackThreads = 256;
// Four pieces of 16 bytes for each thread, under way at once: with fewer the memory is not busy.
inline constexpr unsigned kPackPieces = 4;
inline constexpr unsigned kPackChunk = kPackThreads * 16 * kPackPieces;

// For compute capability 6.0 and later.
std::string PackingPtx();
// packing_hip.inc.
const char* PackingHip();

}  // namespace hvd::backend::cuda
