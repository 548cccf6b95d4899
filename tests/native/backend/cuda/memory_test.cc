// Memory of the device: given, used, taken back.
#include <atomic>
#include <chrono>
#include <thread>

#include "native/backend/cuda/gpu.h"

namespace hvd::test::backend_cuda_memory {
namespace {

using backend::cuda::DeviceMemory;
using backend::cuda::EventPool;
using backend::cuda::PinnedMemory;
using backend::cuda::Scratch;

constexpr size_t kBytes = 100'000;

void PutCopy(const Gpu& gpu, std::byte* to, const std::byte* from, const Stream& stream) {
  EXPECT_OK(
      CallIn(gpu.context(), gpu.driver()->memcpy_dtod_async, AddressOf(to), AddressOf(from), kBytes, stream.handle()));
}

// Holds a stream back until it is opened.
class Gate {
 public:
  explicit Gate(const Stream& stream) {
    int (*put)(void*, void (*)(void*), void*) = nullptr;
    Library(PathOfCuda()).Bind(OverHip() ? "hipLaunchHostFunc" : "cuLaunchHostFunc", put);
    put(stream.handle(), [](void* of) { static_cast<Gate*>(of)->open_.wait(false); }, this);
  }
  void Open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_{false};
};

TEST(cuda_memory_is_there_at_once) {
  const Gpu gpu;
  const Bytes data = Filled(kBytes, 3);
  for (int k = 0; k < 5; ++k) {
    const auto block = gpu.New(kBytes);
    EXPECT_EQ(block->bytes, kBytes);
    const auto stream = gpu.NewStream();
    gpu.PutUpload(block->data, data, *stream);
    EXPECT_OK(stream->Synchronize());
    EXPECT(gpu.Download(block->data, kBytes) == data);
  }
  EXPECT(gpu.New(0) != nullptr);
}

TEST(cuda_memory_is_there_after_an_event) {
  const Gpu gpu;
  const Bytes data = Filled(kBytes, 4);
  const auto stream = gpu.NewStream();
  std::shared_ptr<DeviceEvent> ready;
  const auto block = gpu.devices().memory().Allocate(kBytes, &ready);
  EXPECT_OK(block.status());
  EXPECT_OK(ready->HoldBack(stream->handle()));
  gpu.PutUpload((*block)->data, data, *stream);
  EXPECT_OK(stream->Synchronize());
  EXPECT(gpu.Download((*block)->data, kBytes) == data);
}

TEST(cuda_memory_that_nobody_has_used_is_free) {
  NEEDS_FAKES();
  const Gpu gpu;
  gpu.Settle();
  const int before = gpu.fakes().fake_cuda_blocks();
  std::shared_ptr<DeviceEvent> ready;
  EXPECT_OK(gpu.devices().memory().Allocate(kBytes, &ready).status());
  gpu.Settle();
  EXPECT_EQ(gpu.fakes().fake_cuda_blocks(), before);
}

TEST(cuda_memory_let_go_is_kept_for_its_users) {
  const Gpu gpu;
  const Bytes data = Filled(kBytes, 5);
  const auto result = gpu.New(kBytes), second = gpu.New(kBytes);
  const auto used = gpu.NewStream(), other = gpu.NewStream();
  gpu.devices().memory().UsedOn(used);
  gpu.devices().memory().UsedOn(gpu.NewStream());  // gone at once
  auto block = gpu.Upload(data), by_event = gpu.Upload(data);
  PutCopy(gpu, result->data, block->data, *used);
  block = nullptr;
  PutCopy(gpu, second->data, by_event->data, *other);
  const auto last = other->Record();
  gpu.devices().memory().GiveBack(std::move(by_event), **last);
  EXPECT_OK(used->Synchronize());
  EXPECT_OK(other->Synchronize());
  EXPECT(gpu.Download(result->data, kBytes) == data);
  EXPECT(gpu.Download(second->data, kBytes) == data);
}

// What is given back late holds up nobody who wants memory.
TEST(cuda_memory_is_given_while_other_is_still_used) {
  const Gpu gpu;
  const auto user = gpu.NewStream();
  Gate gate(*user);
  const auto last = user->Record();
  gpu.devices().memory().GiveBack(gpu.New(kBytes), **last);
  EXPECT(gpu.New(kBytes) != nullptr);
  EXPECT(!(*last)->Reached());
  gate.Open();
  EXPECT_OK((*last)->Wait());
}

// Nor is it given to somebody else before its users are through: HIP's pool gives what is freed at once on the stream
// on which it was allocated.
TEST(cuda_memory_is_not_given_again_while_it_is_used) {
  const Gpu gpu;
  const Bytes data = Filled(kBytes, 14), other = Filled(kBytes, 15);
  const auto result = gpu.New(kBytes);
  const auto user = gpu.NewStream(), next = gpu.NewStream();
  auto block = gpu.Upload(data);
  Gate gate(*user);
  PutCopy(gpu, result->data, block->data, *user);
  const auto last = user->Record();
  gpu.devices().memory().GiveBack(std::move(block), **last);
  std::shared_ptr<DeviceEvent> ready;
  const auto again = gpu.devices().memory().Allocate(kBytes, &ready);
  EXPECT_OK(again.status());
  EXPECT_OK(ready->HoldBack(next->handle()));
  gpu.PutUpload((*again)->data, other, *next);
  gate.Open();
  EXPECT_OK(user->Synchronize());
  EXPECT_OK(next->Synchronize());
  EXPECT(gpu.Download(result->data, kBytes) == data);
  EXPECT(gpu.Download((*again)->data, kBytes) == other);
}

// What has not been freed by then is freed when the memory itself goes.
TEST(cuda_memory_that_goes_leaves_nothing_behind) {
  NEEDS_FAKES();
  const Gpu gpu;
  gpu.Settle();
  const int before = gpu.fakes().fake_cuda_blocks();
  const auto user = gpu.NewStream();
  auto memory = DeviceMemory::Make(gpu.devices().events());
  EXPECT_OK(memory.status());
  auto block = (*memory)->Allocate(kBytes);
  EXPECT_OK(block.status());
  const auto late = gpu.New(2 * kBytes);
  PutCopy(gpu, late->data, (*block)->data, *user);
  const auto last = user->Record();
  (*memory)->GiveBack(std::move(*block), **last);
  *memory = nullptr;
  for (int tries = 0; gpu.fakes().fake_cuda_blocks() != before + 1 && tries < 10'000; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(gpu.fakes().fake_cuda_blocks(), before + 1);
  EXPECT_OK(user->Synchronize());
}

TEST(cuda_memory_runs_out) {
  const Gpu gpu;
  const auto block = gpu.devices().Allocate(size_t{1} << 46);
  EXPECT(block.status().code() == Code::kResource);
  EXPECT(Contains(block.status(), "no memory on GPU 0 ("));
  EXPECT(Contains(block.status(), "for 70368744.2 MB of results ("));
  EXPECT(Contains(block.status(), " MB are free"));
  EXPECT(Contains(block.status(), OverHip() ? "hipErrorOutOfMemory" : "CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT(gpu.New(kBytes) != nullptr);
}

TEST(cuda_memory_is_not_kept_when_its_event_fails) {
  NEEDS_FAKES();
  const Gpu gpu;
  gpu.Settle();
  const int before = gpu.fakes().fake_cuda_blocks();
  const Driver& driver = gpu.driver();
  for (const char* function :
       {driver->event_record.name(), driver->stream_wait_event.name(), driver->mem_alloc_async.name()}) {
    gpu.fakes().fake_cuda_fail_next(function, 400);
    EXPECT(gpu.devices().Allocate(kBytes).status().code() == Code::kInternal);
    gpu.Settle();
    EXPECT_EQ(gpu.fakes().fake_cuda_blocks(), before);
  }
}

// Drivers before CUDA 11.2, and virtual GPUs.
TEST(cuda_memory_without_pools) {
  NEEDS_FAKES();
  const Gpu gpu;
  gpu.fakes().fake_cuda_fail_next(gpu.driver()->device_get_attribute.name(), 1);
  const auto context = Context::Open(OpenDriver(), 0);
  EXPECT_OK(context.status());
  EXPECT(!(*context)->has_memory_pools() && gpu.context().has_memory_pools());
  const auto events = std::make_shared<EventPool>(*context);
  const auto memory = DeviceMemory::Make(events);
  EXPECT_OK(memory.status());
  const Bytes data = Filled(kBytes, 6);
  const int before = gpu.fakes().fake_cuda_blocks();
  auto block = (*memory)->Allocate(kBytes);
  EXPECT_OK(block.status());
  const auto result = gpu.New(kBytes);
  const auto stream = gpu.NewStream();
  gpu.PutUpload((*block)->data, data, *stream);
  PutCopy(gpu, result->data, (*block)->data, *stream);
  const auto last = stream->Record();
  (*memory)->GiveBack(std::move(*block), **last);
  EXPECT((*last)->Reached());
  EXPECT_EQ(gpu.fakes().fake_cuda_blocks(), before + 1);
  EXPECT(gpu.Download(result->data, kBytes) == data);
}

TEST(cuda_scratch_grows_under_work) {
  const Gpu gpu;
  const auto stream = gpu.NewStream();
  const Bytes data = Filled(kBytes, 8);
  const auto from = gpu.Upload(data), to = gpu.New(kBytes);
  Scratch scratch(gpu.devices().memory(), *stream);
  std::byte* before = nullptr;
  for (const size_t bytes : {kBytes, 2 * kBytes, size_t{9} << 20, size_t{1}}) {
    const auto room = scratch.Room(bytes);
    EXPECT_OK(room.status());
    if (bytes == 2 * kBytes || bytes == 1) EXPECT(*room == before);  // it was large enough
    before = *room;
    PutCopy(gpu, *room, from->data, *stream);
    PutCopy(gpu, to->data, *room, *stream);
  }
  EXPECT_OK(scratch.Release());
  EXPECT_OK(stream->Synchronize());
  EXPECT(gpu.Download(to->data, kBytes) == data);
  EXPECT(scratch.Room(size_t{1} << 46).status().code() == Code::kResource);
}

TEST(cuda_pinned_memory_grows) {
  const Gpu gpu;
  const auto stream = gpu.NewStream();
  const auto on_device = gpu.Upload(Filled(kBytes, 9));
  PinnedMemory pinned(gpu.devices().context());
  for (const size_t bytes : {kBytes, size_t{5} << 20}) {
    pinned.Reset();
    const auto room = pinned.Room(bytes);
    EXPECT_OK(room.status());
    EXPECT_OK(CallIn(gpu.context(), gpu.driver()->memcpy_dtoh_async, *room, AddressOf(on_device->data), kBytes,
                     stream->handle()));
    EXPECT_OK(stream->Synchronize());
    EXPECT(Bytes(*room, *room + kBytes) == Filled(kBytes, 9));
  }
  const Status none = pinned.Room(size_t{1} << 46).status();
  EXPECT(none.code() == Code::kResource);
  EXPECT(Contains(none, std::string("no 70368744.2 MB of pinned host memory: ") + gpu.driver()->mem_host_alloc.name()));
}

TEST(cuda_pinned_memory_gives_nothing_twice) {
  const Gpu gpu;
  PinnedMemory pinned(gpu.devices().context());
  std::vector<std::byte*> first;
  int blocks = 0;
  for (int again = 0; again < 2; ++again) {
    pinned.Reset();
    std::vector<std::byte*> rooms;
    for (const size_t bytes : {size_t{1} << 20, size_t{9} << 20, size_t{0}, size_t{1} << 20, size_t{1}}) {
      const auto room = pinned.Room(bytes);
      EXPECT_OK(room.status());
      rooms.push_back(*room);
      std::fill_n(*room, bytes, static_cast<std::byte>(rooms.size()));
    }
    for (const size_t i : {0, 1, 3, 4}) EXPECT(*rooms[i] == static_cast<std::byte>(i + 1));
    EXPECT(again == 0 || (rooms == first && gpu.fakes().fake_cuda_blocks() == blocks));  // no more of it either
    first = rooms;
    blocks = gpu.fakes().fake_cuda_blocks();
  }
}

}  // namespace
}  // namespace hvd::test::backend_cuda_memory
