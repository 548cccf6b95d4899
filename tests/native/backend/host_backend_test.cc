// What the backend of the host's ways adds to them.
#include "backend/host_backend.h"

#include "native/collective/channels/world.h"

namespace hvd::test::backend_host_backend {
namespace {

using collective::Batch;

// What all ranks get of these float8_e4m3fn, one from each rank; equal in all rows.
Bytes Reduced(ChannelWorld& world, int rank, OpType type, ReduceOp op, std::byte own, double postscale) {
  const auto side = world.MakeGroup(rank);
  const int64_t rows = 3 * world.size();
  Bytes input(rows, own), output(rows);
  Batch batch;
  batch.seq = 1;
  batch.type = type;
  batch.op = op;
  batch.dtype = DType::kFloat8E4m3fn;
  batch.postscale = postscale;
  batch.tensors.push_back(MakeTensor(input.data(), type == OpType::kAllreduce ? output.data() : nullptr, {rows}));
  backend::HostBackend host;
  EXPECT_OK(world.Drive(rank, 1, host.Execute(side->group, batch)));
  EXPECT(batch.dtype == DType::kFloat8E4m3fn && batch.tensors[0].input == input.data());
  return Bytes(batch.tensors[0].output, batch.tensors[0].output + (type == OpType::kAllreduce ? rows : 3));
}

void ExpectReduced(ReduceOp op, const std::vector<std::byte>& own, bool averages, std::byte expected) {
  for (const std::vector<int>& layout : {std::vector<int>{0, 0, 0, 0}, {0, 1, 2, 3}, {0, 0, 1, 1}, {0, 0, 0, 1}}) {
    for (const OpType type : {OpType::kAllreduce, OpType::kReducescatter}) {
      ChannelWorld world(layout, Link::kMemory, true);
      RanksAsThreads(world.size(), [&](int rank) {
        const Bytes reduced = Reduced(world, rank, type, op, own[rank], averages ? 1.0 / world.size() : 1.0);
        EXPECT(reduced == Bytes(reduced.size(), expected));
      });
    }
  }
}

// As float8_e4m3fn, whose largest number is 448 and whose smallest is 1/512.
constexpr std::byte k240{0x77}, k32{0x60}, k1{0x38}, kOver32{0x10}, k7Over512{0x07};

TEST(host_backend_averages_eight_bits_that_add_up_to_too_much) { ExpectReduced(ReduceOp::kSum, {4, k240}, true, k240); }

TEST(host_backend_averages_eight_bits_that_are_too_small_to_be_divided_first) {
  ExpectReduced(ReduceOp::kSum, {4, k7Over512}, true, k7Over512);
}

TEST(host_backend_multiplies_eight_bits_beyond_their_range) {
  ExpectReduced(ReduceOp::kProduct, {k32, k32, kOver32, kOver32}, false, k1);
}

}  // namespace
}  // namespace hvd::test::backend_host_backend
