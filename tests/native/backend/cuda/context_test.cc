// The driver opened, and the context of its GPU.
#include <numeric>

#include "native/backend/cuda/gpu.h"

namespace hvd::test {
namespace {

using backend::cuda::Current;

Handle CurrentHandle(const Driver& driver) {
  Handle current = nullptr;
  EXPECT_OK(driver.Call(driver->ctx_get_current, &current));
  return current;
}

TEST(cuda_driver_that_is_not_there) {
  const Status status = Driver::Open("/nowhere/libcuda.so.1").status();
  EXPECT(status.code() == Code::kBackendUnavailable);
  EXPECT(Contains(status, "/nowhere/libcuda.so.1"));
  EXPECT(Contains(status, "comes with the NVIDIA driver"));
}

TEST(cuda_driver_that_lacks_a_function) {
  const std::string other = std::string(HVD_FAKE_MPI) + "/libfake_mpi_0.so";
  const Status status = Driver::Open(other).status();
  EXPECT(status.code() == Code::kBackendUnavailable);
  EXPECT(Contains(status, "too old (" + other + ")"));
  EXPECT(Contains(status, "it has no cuInit. Update the NVIDIA driver."));
}

TEST(cuda_driver_that_does_not_begin) {
  if (!OverFakes()) return;
  Fakes().fake_cuda_fail_next("cuInit", 3);
  const Status status = Driver::Open(PathOfCuda()).status();
  EXPECT(status.code() == Code::kBackendUnavailable);
  EXPECT(Contains(status, "cuInit of " + PathOfCuda()));
  EXPECT(Contains(status, "CUDA_ERROR_NOT_INITIALIZED (initialization error)"));
}

TEST(cuda_driver_of_long_ago) {
  EXPECT_OK(Driver::CheckVersion("libcuda.so.1", 11'000));
  const Status status = Driver::CheckVersion("libcuda.so.1", 10'020);
  EXPECT(status.code() == Code::kBackendUnavailable);
  EXPECT(Contains(status,
                  "too old (libcuda.so.1): this version needs one for CUDA 11.0 or later; it is one for CUDA "
                  "10.2. Update the NVIDIA driver."));
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
  EXPECT(context.driver().version() >= 11'000);
  EXPECT(!context.name().empty());
  EXPECT(context.capability() >= 60);
  EXPECT(context.Text() == "GPU 0 (" + context.name() + ")");
  const auto& uuid = context.uuid();
  EXPECT(std::any_of(uuid.begin(), uuid.end(), [](std::byte b) { return b != std::byte{0}; }));
  EXPECT_EQ(gpu.devices().place(), 1);
  EXPECT(*CudaDevices::Of(PathOfCuda(), 0) == *CudaDevices::Of(PathOfCuda(), 0));
  EXPECT(CudaDevices::Of("/nowhere/libcuda.so.1", 0).status().code() == Code::kBackendUnavailable);
}

TEST(cuda_context_is_current_for_a_while) {
  const Gpu gpu;
  InOtherThread([&] {
    EXPECT(CurrentHandle(gpu.driver()) == nullptr);
    {
      const Current current(gpu.context());
      EXPECT(CurrentHandle(gpu.driver()) == gpu.context().handle());
      const Current again(gpu.context());
      EXPECT(CurrentHandle(gpu.driver()) == gpu.context().handle());
    }
    EXPECT(CurrentHandle(gpu.driver()) == nullptr);
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
    EXPECT_OK(driver->Call((*driver)->ctx_set_current, (*other)->handle()));
    EXPECT(gpu.New(100) != nullptr);
    EXPECT(CurrentHandle(*driver) == (*other)->handle());
  });
}

}  // namespace
}  // namespace hvd::test
