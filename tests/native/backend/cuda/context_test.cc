// The driver opened, and the context of its GPU.
#include <numeric>

#include "native/backend/cuda/gpu.h"

namespace hvd::test::backend_cuda_context {
namespace {

using backend::cuda::Current;
using backend::cuda::Platform;
using backend::cuda::Standing;

Standing StandingNow(const Driver& driver) {
  Standing now;
  EXPECT_EQ(Standing::Get(driver, &now), 0);
  return now;
}

TEST(cuda_driver_that_is_not_there) {
  const Status status = Driver::Open("/nowhere/libcuda.so.1").status();
  EXPECT(status.code() == Code::kBackendUnavailable);
  EXPECT(Contains(status, "the CUDA driver's library cannot be opened: /nowhere/libcuda.so.1"));
  EXPECT(Contains(status, "comes with the NVIDIA driver"));
  const Status hip = Driver::Open("/nowhere/libamdhip64.so.7").status();
  EXPECT(hip.code() == Code::kBackendUnavailable);
  EXPECT(Contains(hip, "HIP's library cannot be opened: /nowhere/libamdhip64.so.7"));
  EXPECT(Contains(hip, "comes with ROCm"));
}

TEST(cuda_driver_that_lacks_a_function) {
  const std::string other = Folder() + "/libfake_mpi_0.so";
  const Status status = Driver::Open(other).status();
  EXPECT(status.code() == Code::kBackendUnavailable);
  EXPECT(Contains(status, "too old (" + other + ")"));
  EXPECT(Contains(status, "it has no cuInit. Update the NVIDIA driver."));
}

TEST(cuda_driver_that_does_not_begin) {
  NEEDS_FAKES();
  const std::string function = OverHip() ? "hipInit" : "cuInit";
  Fakes().fake_cuda_fail_next(function.c_str(), 3);
  const Status status = Driver::Open(PathOfCuda()).status();
  EXPECT(status.code() == Code::kBackendUnavailable);
  EXPECT(Contains(status, function + " of " + PathOfCuda()));
  const std::string name = OverHip() ? "hipErrorNotInitialized" : "CUDA_ERROR_NOT_INITIALIZED";
  EXPECT(Contains(status, name + " (initialization error)"));
}

TEST(cuda_driver_of_long_ago) {
  const Platform& cuda = Platform::Named("libcuda.so.1");
  EXPECT_OK(Driver::CheckVersion(cuda, "libcuda.so.1", 11'000));
  const Status status = Driver::CheckVersion(cuda, "libcuda.so.1", 10'020);
  EXPECT(status.code() == Code::kBackendUnavailable);
  EXPECT(Contains(status,
                  "too old (libcuda.so.1): this version needs one for CUDA 11.0 or later; it is one for CUDA "
                  "10.2. Update the NVIDIA driver."));
  const Platform& hip = Platform::Named("libamdhip64.so.6");
  EXPECT_OK(Driver::CheckVersion(hip, "libamdhip64.so.6", 60'032'830));
  EXPECT(
      Contains(Driver::CheckVersion(hip, "libamdhip64.so.5", 50'731'921),
               "HIP is too old (libamdhip64.so.5): this version needs HIP 6.0 or later; it is HIP 5.7. Update ROCm."));
}

TEST(cuda_driver_is_known_by_its_functions) {
  const auto driver = OpenDriver();
  EXPECT_EQ(std::string(driver->platform().name), OverHip() ? "HIP" : "CUDA");
  EXPECT(driver->version() >= driver->platform().oldest);
}

// HIP keeps a thread's last failure for whoever asks next: a framework would take ours for its own.
TEST(cuda_failures_of_ours_are_not_left_for_the_framework) {
  if (!OverHip()) return;
  const Gpu gpu;
  int (*last_error)() = nullptr;
  Library(PathOfCuda()).Bind("hipGetLastError", last_error);
  EXPECT(!gpu.driver().Call(gpu.driver()->event_destroy, nullptr).ok());
  EXPECT_EQ(last_error(), 0);
}

// "Not yet" is a code as well, but no failure that HIP keeps: what is kept then is the framework's.
TEST(cuda_failures_of_the_framework_are_left_to_it) {
  if (!OverHip() || !OverFakes()) return;
  const Gpu gpu;
  const Library hip(PathOfCuda());
  int (*last_error)() = nullptr;
  int (*destroy)(void*) = nullptr;
  hip.Bind("hipGetLastError", last_error);
  hip.Bind("hipEventDestroy", destroy);
  const auto stream = gpu.NewStream();
  gpu.fakes().fake_cuda_stall(1);
  const auto moment = stream->Record();
  const int failed = destroy(nullptr);
  EXPECT(failed != 0);
  EXPECT(!(*moment)->Reached());
  gpu.fakes().fake_cuda_stall(0);
  EXPECT_EQ(last_error(), failed);
}

TEST(cuda_gpu_that_is_not_there) {
  const auto driver = OpenDriver();
  for (const int device : {-1, 99}) {
    const Status status = Context::Open(driver, device).status();
    EXPECT(status.code() == Code::kBackendUnavailable);
    EXPECT(Contains(status, "GPU " + std::to_string(device) + " cannot be used: the driver shows "));
  }
}

TEST(cuda_context_knows_its_gpu) {
  const Gpu gpu;
  const Context& context = gpu.context();
  EXPECT(context.driver().version() >= context.driver().platform().oldest);
  EXPECT(!context.name().empty());
  EXPECT(context.capability() >= 60);
  EXPECT(context.Text() == "GPU 0 (" + context.name() + ")");
  const auto& uuid = context.uuid();
  EXPECT(std::any_of(uuid.begin(), uuid.end(), [](std::byte b) { return b != std::byte{0}; }));
  EXPECT(std::any_of(context.place().begin(), context.place().end(), [](std::byte b) { return b != std::byte{0}; }));
  EXPECT_EQ(gpu.devices().place(), 1);
  EXPECT(*CudaDevices::Of(PathOfCuda(), 0) == *CudaDevices::Of(PathOfCuda(), 0));
  EXPECT(CudaDevices::Of("/nowhere/libcuda.so.1", 0).status().code() == Code::kBackendUnavailable);
}

TEST(cuda_context_is_current_for_a_while) {
  const Gpu gpu;
  InOtherThread([&] {
    EXPECT(StandingNow(gpu.driver()) == Standing());
    {
      const Current current(gpu.context());
      EXPECT(StandingNow(gpu.driver()) == gpu.context().standing());
      const Current again(gpu.context());
      EXPECT(StandingNow(gpu.driver()) == gpu.context().standing());
    }
    EXPECT(StandingNow(gpu.driver()) == Standing());
  });
}

TEST(cuda_context_of_another_gpu_comes_back) {
  const auto driver = OpenDriver();
  int count = 0;
  EXPECT_OK(driver->Call((*driver)->device_get_count, &count));
  if (count < 2) return;
  const Gpu gpu;
  const auto other = Context::Open(driver, 1);
  EXPECT_OK(other.status());
  EXPECT((*other)->uuid() != gpu.context().uuid());
  InOtherThread([&] {
    EXPECT_EQ(Standing::Set(*driver, (*other)->standing()), 0);
    EXPECT(gpu.New(100) != nullptr);
    EXPECT(StandingNow(*driver) == (*other)->standing());
  });
}

}  // namespace
}  // namespace hvd::test::backend_cuda_context
