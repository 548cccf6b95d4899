// When things happened on the GPU, by the host's clock.
#include "backend/cuda/clock.h"

#include "base/monotonic.h"
#include "native/backend/cuda/gpu.h"

namespace hvd::test::backend_cuda_clock {
namespace {

using backend::cuda::Clock;

TEST(cuda_clock_tells_when_moments_came) {
  const Gpu gpu;
  const auto stream = gpu.NewStream();
  const auto clock = std::make_shared<Clock>(gpu.devices().context());
  const Bytes data = Filled(1000, 1);
  const auto block = gpu.New(data.size());
  for (int i = 0; i < 5; ++i) {
    const double before = MonotonicS();
    const auto first = clock->Record(stream->handle());
    gpu.PutUpload(block->data, data, *stream);
    const auto second = clock->Record(stream->handle());
    EXPECT_OK(first.status());
    EXPECT_OK(second.status());
    EXPECT_OK(stream->Synchronize());
    const double after = MonotonicS();
    EXPECT((*first)->Reached() && (*second)->Reached());
    EXPECT_OK(clock->Compare());
    const auto begin = (*first)->TimeS(), end = (*second)->TimeS();
    EXPECT_OK(begin.status());
    EXPECT_OK(end.status());
    const double error = clock->error_s() + 20e-6;
    EXPECT(before - error <= *begin && *begin < *end && *end <= after + error);
  }
}

TEST(cuda_clock_fails_without_waiting_for_long) {
  NEEDS_FAKES();
  const Gpu gpu;
  const auto stream = gpu.NewStream();
  const auto clock = std::make_shared<Clock>(gpu.devices().context());
  const auto moment = clock->Record(stream->handle());
  EXPECT_OK(moment.status());
  EXPECT_OK(stream->Synchronize());
  EXPECT(!(*moment)->TimeS().ok());  // the clocks have not been compared
  gpu.fakes().fake_cuda_stall(1);
  EXPECT(clock->Compare().code() == Code::kTimeout);
  gpu.fakes().fake_cuda_stall(0);
  EXPECT_OK(clock->Compare());
  EXPECT_OK((*moment)->TimeS().status());
  gpu.fakes().fake_cuda_fail_next(gpu.driver()->event_elapsed_time.name(), 700);
  EXPECT(!(*moment)->TimeS().ok());
}

}  // namespace
}  // namespace hvd::test::backend_cuda_clock
