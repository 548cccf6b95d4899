// Many tensors in one launch, against plain C++.
#include "backend/cuda/packing/packing.h"

#include "native/backend/cuda/gpu.h"
#include "native/backend/cuda/packing_cases.h"

namespace hvd::test::backend_cuda_packing {
namespace {

using backend::cuda::kPackChunk;
using backend::cuda::kPackEntries;
using backend::cuda::Move;

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
  NEEDS_FAKES();
  gpu.fakes().fake_cuda_fail_next(gpu.driver()->module_load_data.name(), OverHip() ? 200 : 218);
  backend::cuda::Packing packing(gpu.devices().context());
  for (int k = 0; k < 2; ++k) {
    EXPECT(packing.Prepare().code() == Code::kBackendUnavailable);
    EXPECT(Contains(packing.Prepare(), "does not compile the packing kernels for GPU 0 ("));
    const char* const words = OverHip() ? "device kernel image is invalid" : "a PTX JIT compilation failed";
    EXPECT(Contains(packing.Prepare(), words));
  }
}

}  // namespace
}  // namespace hvd::test::backend_cuda_packing
