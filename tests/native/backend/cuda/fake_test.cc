#include "native/backend/cuda/driver.h"

namespace hvd::test {
namespace {

TEST(fake_nccl_smoke) {
  const Cuda cuda;
  const Nccl nccl;
  const Fakes fakes;
  UniqueId id;
  EXPECT_EQ(nccl.ncclGetUniqueId(&id), 0);
  RanksAsThreads(2, [&](int r) {
    cuda.Use(r);
    void* stream = cuda.NewStream();
    void* comm = nullptr;
    NcclConfig config;
    config.blocking = 0;
    EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, 2, id, r, &config), 7);
    EXPECT_EQ(nccl.Settled(comm), 0);
    const uint64_t in = cuda.NewMemory(std::vector<float>(200000, static_cast<float>(r + 1)), stream);
    const uint64_t out = cuda.NewMemory(200000 * 4);
    for (int i = 0; i < 3; ++i) {
      const int code = nccl.ncclAllReduce(reinterpret_cast<void*>(in), reinterpret_cast<void*>(out), 200000,
                                          kNcclFloat32, kNcclSum, comm, stream);
      EXPECT_EQ(code, i == 0 ? 7 : 0);
      EXPECT_EQ(nccl.Settled(comm), 0);
      EXPECT(cuda.Read<float>(out, 200000, stream) == std::vector<float>(200000, 3.0f));
    }
    EXPECT_EQ(nccl.ncclCommDestroy(comm), 0);
  });
  EXPECT_EQ(fakes.NewFault(), "");
}

}  // namespace
}  // namespace hvd::test
