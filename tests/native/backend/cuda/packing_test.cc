// Many tensors in one launch, against plain C++.
#include "backend/cuda/packing.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "base/half.h"
#include "native/backend/cuda/gpu.h"

namespace hvd::test {
namespace {

using backend::cuda::kPackChunk;
using backend::cuda::kPackEntries;
using backend::cuda::Move;

// Where a tensor lies in the two buffers.
struct Piece {
  size_t from, to, bytes;
};

float ToFloat(DType dtype, uint16_t bits) {
  return dtype == DType::kFloat16 ? FloatFromHalf(bits) : FloatFromBfloat16(bits);
}
uint16_t FromFloat(DType dtype, float value) {
  return dtype == DType::kFloat16 ? HalfFromFloat(value) : Bfloat16FromFloat(value);
}

void ScaleElement(DType dtype, float factor, std::byte* at) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    value *= factor;
    std::memcpy(at, &value, sizeof value);
    return;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  bits = FromFloat(dtype, ToFloat(dtype, bits) * factor);
  std::memcpy(at, &bits, sizeof bits);
}

// The payload of a NaN is the device's.
bool IsNan(DType dtype, const std::byte* at) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return std::isnan(value);
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return std::isnan(ToFloat(dtype, bits));
}

void Scale(DType dtype, float factor, std::byte* data, size_t bytes) {
  if (factor == 1) return;
  for (size_t at = 0; at < bytes; at += SizeOf(dtype)) ScaleElement(dtype, factor, data + at);
}

bool Same(DType dtype, float factor, const Bytes& a, const Bytes& b, const std::vector<Piece>& pieces) {
  if (a == b) return true;
  if (factor == 1) return false;
  Bytes x = a, y = b;
  for (const Piece& piece : pieces) {
    for (size_t at = piece.to; at < piece.to + piece.bytes; at += SizeOf(dtype)) {
      if (!IsNan(dtype, &x[at]) || !IsNan(dtype, &y[at])) continue;
      std::fill_n(&x[at], SizeOf(dtype), std::byte{0});
      std::fill_n(&y[at], SizeOf(dtype), std::byte{0});
    }
  }
  return x == y;
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  size_t Below(size_t n) { return engine_() % n; }
  // Any bits: infinities, NaNs and denormals are among them.
  Bytes Data(size_t bytes) {
    Bytes data(bytes);
    for (std::byte& b : data) b = static_cast<std::byte>(engine_() >> 7);
    return data;
  }
  // Pieces one behind the other with gaps, at multiples of `align`.
  std::vector<Piece> Pieces(int n, size_t most_bytes, size_t unit, size_t align) {
    std::vector<Piece> pieces;
    size_t from = 0, to = 0;
    const auto next = [&](size_t at) { return (at + align - 1) / align * align + Below(3) * align; };
    for (int k = 0; k < n; ++k) {
      pieces.push_back({next(from), next(to), Below(most_bytes / unit) * unit});
      from = pieces.back().from + pieces.back().bytes;
      to = pieces.back().to + pieces.back().bytes;
    }
    return pieces;
  }

 private:
  std::minstd_rand engine_;
};

void Check(const Gpu& gpu, DType dtype, double factor, const std::vector<Piece>& pieces) {
  Random random(static_cast<unsigned>(pieces.size()));
  const Bytes from = random.Data(pieces.back().from + pieces.back().bytes + 1);
  const Bytes before = random.Data(pieces.back().to + pieces.back().bytes + 1);
  const auto source = gpu.Upload(from), target = gpu.Upload(before);
  Bytes expected = before;
  std::vector<Move> moves;
  const auto rounded = static_cast<float>(factor);
  for (const Piece& piece : pieces) {
    moves.push_back({source->data + piece.from, target->data + piece.to, piece.bytes});
    std::copy_n(&from[piece.from], piece.bytes, &expected[piece.to]);
    Scale(dtype, rounded, &expected[piece.to], piece.bytes);
  }
  const auto stream = gpu.NewStream();
  EXPECT_OK(gpu.devices().packing().Launch(moves, dtype, factor, stream->handle()));
  EXPECT_OK(stream->Synchronize());
  EXPECT(Same(dtype, rounded, gpu.Download(target->data, before.size()), expected, pieces));
}

TEST(cuda_packing_scales) {
  const Gpu gpu;
  Random random(1);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    for (const double factor : {0.5, 1.0 / 3, 1e6, 0.0, -1.0}) {
      for (const size_t align : {SizeOf(dtype), size_t{16}})
        Check(gpu, dtype, factor, random.Pieces(20, 3 * kPackChunk, SizeOf(dtype), align));
    }
  }
}

TEST(cuda_packing_copies) {
  const Gpu gpu;
  Random random(2);
  for (const DType dtype : {DType::kUint8, DType::kBool, DType::kInt64, DType::kFloat64, DType::kFloat16}) {
    for (const size_t align : {1, 2, 4, 16})
      Check(gpu, dtype, 1.0, random.Pieces(20, 3 * kPackChunk, SizeOf(dtype), std::max(align, SizeOf(dtype))));
  }
}

TEST(cuda_packing_of_more_than_one_table) {
  const Gpu gpu;
  Random random(3);
  for (const int n : {1, kPackEntries - 1, kPackEntries, kPackEntries + 1, 3 * kPackEntries + 5}) {
    Check(gpu, DType::kFloat32, 0.25, random.Pieces(n, 400, 4, 4));
    Check(gpu, DType::kInt32, 1.0, random.Pieces(n, 400, 4, 16));
  }
}

TEST(cuda_packing_of_whole_chunks) {
  const Gpu gpu;
  std::vector<Piece> pieces;
  size_t at = 0;
  for (const size_t bytes : {size_t{0}, size_t{4}, size_t{16}, size_t{kPackChunk} - 16, size_t{kPackChunk} - 4,
                             size_t{kPackChunk}, size_t{kPackChunk} + 4, size_t{2} * kPackChunk}) {
    pieces.push_back({at, at, bytes});
    at += bytes + 32 - bytes % 16;
  }
  Check(gpu, DType::kFloat32, 1.5, pieces);
  Check(gpu, DType::kFloat32, 1.0, pieces);
}

TEST(cuda_packing_in_place) {
  const Gpu gpu;
  Bytes data = Random(4).Data(5 * kPackChunk + 12);
  const auto block = gpu.Upload(data);
  const auto stream = gpu.NewStream();
  EXPECT_OK(gpu.devices().packing().Launch({{block->data, block->data, data.size()}}, DType::kFloat32, 3.0,
                                           stream->handle()));
  EXPECT_OK(stream->Synchronize());
  Scale(DType::kFloat32, 3.0f, data.data(), data.size());
  EXPECT(Same(DType::kFloat32, 3.0f, gpu.Download(block->data, data.size()), data, {{0, 0, data.size()}}));
}

TEST(cuda_packing_refuses) {
  const Gpu gpu;
  const auto block = gpu.New(8);
  const auto stream = gpu.NewStream();
  const Status status =
      gpu.devices().packing().Launch({{block->data, block->data, 8}}, DType::kFloat64, 0.5, stream->handle());
  EXPECT(status.code() == Code::kUnsupported);
  EXPECT(Contains(status, "do not multiply float64"));
  EXPECT_OK(gpu.devices().packing().Launch({}, DType::kFloat32, 0.5, stream->handle()));
  if (!OverFakes()) return;
  gpu.fakes().fake_cuda_fail_next("cuModuleLoadDataEx", 218);
  backend::cuda::Packing packing(gpu.devices().context());
  for (int k = 0; k < 2; ++k) {
    EXPECT(packing.Prepare().code() == Code::kBackendUnavailable);
    EXPECT(Contains(packing.Prepare(), "does not compile the packing kernels for GPU 0 ("));
    EXPECT(Contains(packing.Prepare(), "a PTX JIT compilation failed"));
  }
}

}  // namespace
}  // namespace hvd::test
