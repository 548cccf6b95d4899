// The text of the packing kernels for AMD's GPUs, compiled as C++ and run a thread after another, against plain C++.
#include "backend/cuda/packing/packing_kernels.h"

#include <string>

#include "native/backend/cuda/packing_cases.h"
#include "native/harness/harness.h"

namespace hvd::test::backend_cuda_packing_kernels {
namespace {

struct {
  unsigned x;
} blockIdx, threadIdx;  // NOLINT: as the text calls them

#if defined(__aarch64__) && !defined(__clang__) && __GNUC__ < 13
// These compilers lack the type (and have its macros): what it does is not tested there, but what is done with it.
struct OwnFloat16 {
  explicit OwnFloat16(float value) : bits(HalfFromFloat(value)) {}
  explicit operator float() const { return FloatFromHalf(bits); }
  uint16_t bits;
};
#define _Float16 OwnFloat16  // NOLINT: as the text calls it
#endif

// The kernels, as functions of this file.
#define HVD_KERNELS(...) __VA_ARGS__
#define __device__
#define __global__ static
#define __launch_bounds__(threads)
#include "backend/cuda/packing/packing_hip.inc"
#undef HVD_KERNELS

using backend::cuda::kPackChunk;
using backend::cuda::kPackEntries;
using backend::cuda::PackEntry;

static_assert(hvd_packing::kEntries == kPackEntries && hvd_packing::kThreads == backend::cuda::kPackThreads);
static_assert(hvd_packing::kPieces == backend::cuda::kPackPieces && hvd_packing::kChunk == kPackChunk);
static_assert(sizeof(hvd_packing::Table) == kPackEntries * sizeof(PackEntry));
static_assert(offsetof(hvd_packing::Entry, to) == offsetof(PackEntry, to));
static_assert(offsetof(hvd_packing::Entry, bytes) == offsetof(PackEntry, bytes));
static_assert(offsetof(hvd_packing::Entry, first_block) == offsetof(PackEntry, first_block));

using Kernel = void (*)(hvd_packing::Table, unsigned, float);

Kernel KernelFor(DType dtype, float factor) {
  if (factor == 1) return &hvd_packing::pack_bytes;
  if (dtype == DType::kFloat32) return &hvd_packing::pack_f32;
  return dtype == DType::kFloat16 ? &hvd_packing::pack_f16 : &hvd_packing::pack_bf16;
}

// At an address that is a multiple of 16, as GPUs give memory.
class Buffer {
 public:
  explicit Buffer(const Bytes& bytes) : held_(bytes.size() + 16), bytes_(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), data());
  }
  std::byte* data() { return held_.data() + (16 - reinterpret_cast<uintptr_t>(held_.data()) % 16) % 16; }
  Bytes Read() { return Bytes(data(), data() + bytes_); }

 private:
  Bytes held_;
  const size_t bytes_;
};

void Launch(const std::vector<Piece>& pieces, DType dtype, float factor, std::byte* from, std::byte* to) {
  hvd_packing::Table table = {};
  unsigned used = 0, blocks = 0;
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    const auto bytes = static_cast<unsigned>(piece.bytes);
    table.entries[used++] = {reinterpret_cast<unsigned char*>(from + piece.from),
                             reinterpret_cast<unsigned char*>(to + piece.to), bytes, blocks};
    blocks += (bytes + kPackChunk - 1) / kPackChunk;
  }
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < hvd_packing::kThreads; ++threadIdx.x)
      KernelFor(dtype, factor)(table, used, factor);
  }
}

void Check(DType dtype, double factor, const std::vector<Piece>& pieces) {
  Random random(static_cast<unsigned>(pieces.size()));
  const Bytes from = random.Data(pieces.back().from + pieces.back().bytes + 1);
  const Bytes before = random.Data(pieces.back().to + pieces.back().bytes + 1);
  Bytes expected = before;
  const auto rounded = static_cast<float>(factor);
  for (const Piece& piece : pieces) {
    std::copy_n(&from[piece.from], piece.bytes, &expected[piece.to]);
    Scale(dtype, rounded, &expected[piece.to], piece.bytes);
  }
  Buffer source(from), target(before);
  Launch(pieces, dtype, rounded, source.data(), target.data());
  EXPECT(Same(dtype, rounded, target.Read(), expected, pieces));
  EXPECT(source.Read() == from);
}

TEST(hip_packing_kernels_scale) {
  Random random(1);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    for (const double factor : {0.5, 1.0 / 3, 1e6, 1e-6, 0.0, -1.0}) {
      for (const size_t align : {SizeOf(dtype), size_t{16}})
        Check(dtype, factor, random.Pieces(20, 3 * kPackChunk, SizeOf(dtype), align));
    }
  }
}

TEST(hip_packing_kernels_copy) {
  Random random(2);
  for (const size_t align : {1, 2, 4, 16}) Check(DType::kUint8, 1.0, random.Pieces(20, 3 * kPackChunk, 1, align));
  for (const int n : {1, 2, kPackEntries - 1, kPackEntries}) Check(DType::kInt32, 1.0, random.Pieces(n, 400, 4, 4));
}

// Every number of 16 bits, by factors that leave most of them between two others, or just in the middle.
TEST(hip_packing_kernels_round_every_number) {
  Bytes all(size_t{2} << 16);
  for (size_t bits = 0; bits < all.size() / 2; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    std::memcpy(&all[2 * bits], &value, sizeof value);
  }
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (const float factor : {1.0f / 3, 1.5f, 65504.0f}) {
      const std::vector<Piece> pieces = {{0, 0, all.size()}};
      Buffer numbers(all);
      Launch(pieces, dtype, factor, numbers.data(), numbers.data());
      Bytes expected = all;
      Scale(dtype, factor, expected.data(), expected.size());
      EXPECT(Same(dtype, factor, numbers.Read(), expected, pieces));
    }
  }
}

// What the compiler gets is one line without directives, with the names that the driver is asked for.
TEST(hip_packing_text_has_the_kernels) {
  const std::string text = backend::cuda::PackingHip();
  EXPECT(text.find('#') == std::string::npos);
  for (const char* const name : {"pack_bytes", "pack_f32", "pack_f16", "pack_bf16"})
    EXPECT(text.find(std::string("__global__ void __launch_bounds__(256) ") + name + "(") != std::string::npos);
}

}  // namespace
}  // namespace hvd::test::backend_cuda_packing_kernels
