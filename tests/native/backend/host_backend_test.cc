// What the backend of the host's ways adds to them.
#include "backend/host_backend.h"

#include "native/collective/channels/world.h"

namespace hvd::test {
namespace {

using collective::Batch;

constexpr std::byte k240{0x77};  // as float8_e4m3fn, whose largest number is 448

// The average of 240 on all ranks, whose sum is out of range.
Bytes Averaged(ChannelWorld& world, int rank, OpType type) {
  const auto side = world.MakeGroup(rank);
  const int64_t rows = 3 * world.size();
  Bytes input(rows, k240), output(rows);
  Batch batch;
  batch.seq = 1;
  batch.type = type;
  batch.dtype = DType::kFloat8E4m3fn;
  batch.postscale = 1.0 / world.size();
  batch.tensors.push_back(MakeTensor(input.data(), type == OpType::kAllreduce ? output.data() : nullptr, {rows}));
  backend::HostBackend host;
  EXPECT_OK(world.Drive(rank, 1, host.Execute(side->group, batch)));
  return Bytes(batch.tensors[0].output, batch.tensors[0].output + (type == OpType::kAllreduce ? rows : 3));
}

TEST(host_backend_averages_eight_bits_that_add_up_to_too_much) {
  for (const std::vector<int>& layout : {std::vector<int>{0, 0, 0}, {0, 1, 2}, {0, 0, 1, 1}, {0, 0, 1}}) {
    for (const OpType type : {OpType::kAllreduce, OpType::kReducescatter}) {
      ChannelWorld world(layout, Link::kMemory, true);
      RanksAsThreads(world.size(), [&](int rank) {
        const Bytes averaged = Averaged(world, rank, type);
        EXPECT(averaged == Bytes(averaged.size(), k240));
      });
    }
  }
}

}  // namespace
}  // namespace hvd::test
