// What the engine asks of the GPU: neutral values and copies of results. Moments: event_test.cc.
#include <chrono>
#include <future>

#include "collective/kernels/kernels.h"
#include "native/backend/cuda/gpu.h"
#include "native/base/reduce_ops.h"

namespace hvd::test::backend_cuda_cuda_devices {
namespace {

constexpr size_t kBytes = 100'000;

TEST(cuda_identity_of_all_types) {
  const Gpu gpu;
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    for (const ReduceOp op : ElementwiseOps()) {
      for (const size_t elems : {0, 1, 7, 1001}) {
        std::shared_ptr<DeviceEvent> ready;
        auto block = gpu.devices().Identity(dtype, op, elems, &ready);
        EXPECT_OK(block.status());
        const auto stream = gpu.NewStream();
        EXPECT_OK(ready->HoldBack(stream->handle()));
        Bytes expected(elems * SizeOf(dtype));
        collective::kernels::FillIdentity(dtype, op, expected.data(), elems);
        Bytes found(expected.size());
        if (elems > 0) {
          EXPECT_OK(CallIn(gpu.context(), gpu.driver()->memcpy_dtoh_async, found.data(), AddressOf((*block)->data),
                           found.size(), stream->handle()));
        }
        EXPECT_OK(stream->Synchronize());
        EXPECT(found == expected);
      }
    }
  }
}

TEST(cuda_identity_that_fails_is_not_kept) {
  NEEDS_FAKES();
  const Gpu gpu;
  gpu.Settle();
  const int before = gpu.fakes().fake_cuda_blocks();
  std::shared_ptr<DeviceEvent> ready;
  const Driver& driver = gpu.driver();
  for (const char* function :
       {driver->memset_d32_async.name(), driver->memcpy_dtod_async.name(), driver->mem_alloc_async.name()}) {
    gpu.fakes().fake_cuda_fail_next(function, 400);
    EXPECT(!gpu.devices().Identity(DType::kInt64, ReduceOp::kMin, 1000, &ready).ok());
    gpu.Settle();
    EXPECT_EQ(gpu.fakes().fake_cuda_blocks(), before);
  }
}

// As where a batch is refused for which this rank was to stand in.
TEST(cuda_identity_that_nobody_uses_is_filled_before_it_is_freed) {
  const Gpu gpu;
  std::shared_ptr<DeviceEvent> ready;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin})
    EXPECT_OK(gpu.devices().Identity(DType::kInt64, op, 1000, &ready).status());
}

// A program's stream may wait for another rank, which waits for this one's operation.
TEST(cuda_kernels_are_loaded_before_anything_is_under_way) {
  NEEDS_FAKES();
  const NoFaults no_faults;
  constexpr int kUnused = 7;  // by other tests
  const auto devices = CudaDevices::Of(PathOfCuda(), kUnused);
  EXPECT_OK(devices.status());
  auto block = (*devices)->Allocate(8);
  EXPECT_OK(block.status());
  const auto stream = std::move(*Stream::Make((*devices)->events()));
  no_faults.fakes().fake_cuda_stall(1);
  const std::vector<backend::cuda::Move> move = {{(*block)->data, (*block)->data, 8}};
  const auto& context = *(*devices)->context();
  EXPECT_OK(CallIn(context, context.driver()->memset_d32_async, AddressOf((*block)->data), 0, 2, stream->handle()));
  auto launched =
      std::async([&] { return (*devices)->packing().Launch(move, DType::kFloat32, 0.5, stream->handle()); });
  EXPECT(launched.wait_for(std::chrono::seconds(2)) == std::future_status::ready);
  no_faults.fakes().fake_cuda_stall(0);
  EXPECT_OK(launched.get());
  EXPECT_OK(stream->Synchronize());
}

TEST(cuda_copy_waits_and_keeps_its_source) {
  const Gpu gpu;
  const Bytes data = Filled(kBytes, 11);
  const auto engine = gpu.NewStream(), framework = gpu.NewStream();
  const auto to = gpu.New(kBytes);
  auto from = gpu.New(kBytes);
  gpu.PutUpload(from->data, data, *engine);
  const auto made = engine->Record();
  const std::byte* const source = from->data;
  EXPECT_OK(gpu.devices().Copy(to->data, source, kBytes, *made, framework->handle(), std::move(from)));
  EXPECT_OK(framework->Synchronize());
  EXPECT(gpu.Download(to->data, kBytes) == data);
}

TEST(cuda_copy_to_the_default_stream) {
  const Gpu gpu;
  const Bytes data = Filled(kBytes, 12);
  const auto from = gpu.Upload(data), to = gpu.New(kBytes);
  InOtherThread([&] {
    EXPECT_OK(gpu.devices().Copy(to->data, from->data, kBytes, nullptr, nullptr, nullptr));
    EXPECT_OK(gpu.devices().Copy(to->data, nullptr, 0, nullptr, nullptr, gpu.New(0)));
    const auto marked = gpu.devices().Mark(nullptr);
    const auto end = std::static_pointer_cast<Event>(*marked);
    EXPECT_OK(end->Wait());
  });
  EXPECT(gpu.Download(to->data, kBytes) == data);
}

// What another stream still fills is not given to somebody else although nobody wants it any more.
TEST(cuda_copy_that_fails_keeps_its_source_as_well) {
  NEEDS_FAKES();
  const Gpu gpu;
  const Bytes data = Filled(kBytes, 13);
  const auto engine = gpu.NewStream(), framework = gpu.NewStream();
  const auto to = gpu.New(kBytes);
  gpu.Settle();
  const int before = gpu.fakes().fake_cuda_blocks();
  auto from = gpu.New(kBytes);
  gpu.PutUpload(from->data, data, *engine);
  const auto made = engine->Record();
  gpu.fakes().fake_cuda_fail_next(gpu.driver()->memcpy_dtod_async.name(), 400);
  const std::byte* const source = from->data;
  const Status status = gpu.devices().Copy(to->data, source, kBytes, *made, framework->handle(), std::move(from));
  EXPECT(status.code() == Code::kInternal);
  EXPECT_OK(engine->Synchronize());
  gpu.Settle();
  EXPECT_EQ(gpu.fakes().fake_cuda_blocks(), before);
}

}  // namespace
}  // namespace hvd::test::backend_cuda_cuda_devices
