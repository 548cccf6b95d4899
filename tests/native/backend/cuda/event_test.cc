// Moments on streams.
#include "native/backend/cuda/gpu.h"

namespace hvd::test::backend_cuda_event {
namespace {

constexpr size_t kBytes = 100'000;

TEST(cuda_events_are_used_again) {
  const Gpu gpu;
  const auto stream = gpu.NewStream();
  const auto& events = gpu.devices().events();
  auto first = stream->Record(), second = stream->Record();
  EXPECT_OK(first.status());
  EXPECT_OK(second.status());
  const size_t spare = events->spare();
  *first = nullptr;
  *second = nullptr;
  EXPECT_EQ(events->spare(), spare + 2);
  const auto third = stream->Record();
  EXPECT_EQ(events->spare(), spare + 1);
}

TEST(cuda_event_orders_two_streams) {
  const Gpu gpu;
  const auto one = gpu.NewStream(), two = gpu.NewStream();
  const Bytes data = Filled(kBytes, 7);
  const auto from = gpu.New(kBytes), to = gpu.New(kBytes);
  // The moment is that of the record: the event may be gone and used again before the device comes there.
  gpu.PutUpload(from->data, data, *one);
  {
    const auto made = one->Record();
    EXPECT_OK((*made)->HoldBack(two->handle()));
  }
  const auto other = two->Record();
  EXPECT_OK(CallIn(gpu.context(), gpu.driver()->memcpy_dtod_async, AddressOf(to->data), AddressOf(from->data), kBytes,
                   two->handle()));
  EXPECT_OK(two->Synchronize());
  EXPECT(gpu.Download(to->data, kBytes) == data);
}

TEST(cuda_event_is_reached) {
  const Gpu gpu;
  const auto stream = gpu.NewStream();
  const auto block = gpu.New(kBytes);
  const Bytes data = Filled(kBytes, 1);
  if (OverFakes()) gpu.fakes().fake_cuda_stall(1);
  gpu.PutUpload(block->data, data, *stream);
  const auto made = stream->Record();
  EXPECT_OK(made.status());
  if (OverFakes()) {
    EXPECT(!(*made)->Reached());
    gpu.fakes().fake_cuda_stall(0);
  }
  InOtherThread([&] { EXPECT_OK((*made)->Wait()); });
  EXPECT((*made)->Reached());
}

TEST(cuda_event_tells_of_a_failed_device) {
  NEEDS_FAKES();
  const Gpu gpu;
  const auto made = gpu.NewStream()->Record();
  EXPECT_OK((*made)->Wait());
  bool reached = true;
  gpu.fakes().fake_cuda_fail_next(gpu.driver()->event_query.name(), 400);
  const Status status = (*made)->Ask(&reached);
  EXPECT(status.code() == Code::kInternal && !reached);
  EXPECT(Contains(status, std::string(gpu.driver()->event_query.name()) + " of "));
  EXPECT(Contains(status, std::string(OverHip() ? "hipErrorInvalidHandle" : "CUDA_ERROR_INVALID_HANDLE") +
                              " (invalid resource handle)"));
  gpu.fakes().fake_cuda_fail_next(gpu.driver()->event_query.name(), 400);
  EXPECT(!(*made)->Reached());
  EXPECT((*made)->Reached());
}

// The driver finds it by the context that is current.
TEST(cuda_event_on_the_default_stream_without_a_context) {
  const Gpu gpu;
  const auto own = gpu.NewStream();
  InOtherThread([&] {
    const auto marked = gpu.devices().Mark(nullptr);
    EXPECT_OK(marked.status());
    EXPECT_OK((*marked)->HoldBack(own->handle()));
    const auto after = own->Record();
    EXPECT_OK((*after)->HoldBack(nullptr));
    EXPECT_OK(own->Synchronize());
    EXPECT((*marked)->Reached());
  });
}

TEST(cuda_stream_in_a_capture_is_refused) {
  NEEDS_FAKES();
  const Gpu gpu;
  const auto stream = gpu.NewStream(), other = gpu.NewStream();
  const auto made = other->Record();
  gpu.fakes().fake_cuda_set_capturing(stream->handle(), 1);
  const auto block = gpu.New(8);
  const Status refused[] = {gpu.devices().Mark(stream->handle()).status(), (*made)->HoldBackProgram(stream->handle()),
                            gpu.devices().Copy(block->data, block->data, 8, *made, stream->handle(), gpu.New(8))};
  gpu.fakes().fake_cuda_set_capturing(stream->handle(), 0);
  for (const Status& status : refused) {
    EXPECT(status.code() == Code::kUnsupported);
    EXPECT(Contains(status, "Leave the collective out of the captured graph"));
  }
  EXPECT_OK(gpu.devices().Mark(stream->handle()).status());
}

}  // namespace
}  // namespace hvd::test::backend_cuda_event
