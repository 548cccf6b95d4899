// What the seam relies on in a CUDA driver. Over the fake one, or over a real one that HVD_TEST_CUDA_LIBRARY names;
// what would be undefined there is asked of the fake only.
#include <semaphore>
#include <string>

#include "base/half.h"
#include "native/backend/cuda/driver.h"

namespace hvd::test::backend_cuda_fake {
namespace {

constexpr int kNotReady = 600, kNoContext = 201, kInvalidHandle = 400;

// Holds a stream back until it is opened.
class Gate {
 public:
  Gate(const Cuda& cuda, void* stream) { EXPECT_EQ(cuda.cuLaunchHostFunc(stream, &Wait, &open_), 0); }
  void Open() { open_.release(); }

 private:
  static void Wait(void* open) { static_cast<std::binary_semaphore*>(open)->acquire(); }
  std::binary_semaphore open_{0};
};

std::vector<int> Numbers(size_t n, int from = 0) {
  std::vector<int> numbers(n);
  for (size_t i = 0; i < n; ++i) numbers[i] = from + static_cast<int>(i);
  return numbers;
}

TEST(cuda_contract_contexts) {
  const Cuda cuda;
  cuda.Use(0);
  void *stream = cuda.NewStream(), *event = cuda.NewEvent();
  const uint64_t memory = cuda.NewMemory(64);
  std::thread([&] {
    void* made = nullptr;
    uint64_t address = 0;
    EXPECT_EQ(cuda.cuCtxGetCurrent(&made), 0);
    EXPECT(made == nullptr);
    EXPECT_EQ(cuda.cuEventCreate(&made, 2), kNoContext);
    EXPECT_EQ(cuda.cuMemAlloc_v2(&address, 64), kNoContext);
    EXPECT_EQ(cuda.cuModuleLoadData(&made, ".version 7.0\n.target sm_50\n.address_size 64\n"), kNoContext);
    // What has been made elsewhere can be used.
    EXPECT_EQ(cuda.cuMemsetD8Async(memory, 7, 64, stream), 0);
    EXPECT_EQ(cuda.cuEventRecord(event, stream), 0);
    EXPECT_EQ(cuda.cuStreamWaitEvent(stream, event, 0), 0);
    EXPECT_EQ(cuda.cuEventSynchronize(event), 0);
    EXPECT_EQ(cuda.cuEventQuery(event), 0);
  }).join();
  EXPECT(cuda.Read<unsigned char>(memory, 64, stream) == std::vector<unsigned char>(64, 7));
  int capturing = 1;
  EXPECT_EQ(cuda.cuStreamIsCapturing(stream, &capturing), 0);
  EXPECT_EQ(capturing, 0);
  EXPECT_EQ(cuda.cuEventDestroy_v2(event), 0);
  EXPECT_EQ(cuda.cuStreamDestroy_v2(stream), 0);
  EXPECT_EQ(cuda.cuMemFree_v2(memory), 0);
}

TEST(cuda_contract_copies_and_memsets) {
  const Cuda cuda;
  const Fakes fakes;
  cuda.Use(0);
  void* stream = cuda.NewStream();
  const std::vector<int> numbers = Numbers(1001);
  const uint64_t first = cuda.NewMemory(numbers, stream), second = cuda.NewMemory(4004);
  EXPECT_EQ(cuda.cuMemcpyDtoDAsync_v2(second + 4, first + 8, 3996, stream), 0);
  EXPECT_EQ(cuda.cuMemsetD32Async(second, 77, 1, stream), 0);
  EXPECT_EQ(cuda.cuMemsetD16Async(second + 4000, 0x0102, 2, stream), 0);
  std::vector<int> expected = Numbers(1001, 1);
  expected[0] = 77;
  expected[1000] = 0x01020102;
  EXPECT(cuda.Read<int>(second, 1001, stream) == expected);
  void* pinned = nullptr;
  EXPECT_EQ(cuda.cuMemHostAlloc(&pinned, 4004, 1), 0);
  EXPECT_EQ(cuda.cuMemcpyDtoHAsync_v2(pinned, second, 4004, stream), 0);
  EXPECT_EQ(cuda.cuStreamSynchronize(stream), 0);
  EXPECT(std::memcmp(pinned, expected.data(), 4004) == 0);
  std::vector<int> own(1024);
  EXPECT_EQ(cuda.cuMemHostRegister_v2(own.data(), 4096, 1), 0);
  EXPECT_EQ(cuda.cuMemHostUnregister(own.data()), 0);
  uint64_t later = 0;
  EXPECT_EQ(cuda.cuMemAllocAsync(&later, 400, stream), 0);
  EXPECT_EQ(cuda.cuMemsetD8Async(later, 1, 400, stream), 0);
  EXPECT(cuda.Read<char>(later, 400, stream) == std::vector<char>(400, 1));
  EXPECT_EQ(cuda.cuMemFreeAsync(later, stream), 0);
  EXPECT_EQ(cuda.cuStreamSynchronize(stream), 0);
  EXPECT_EQ(cuda.cuMemFreeHost(pinned), 0);
  EXPECT_EQ(cuda.cuMemFree_v2(first), 0);
  EXPECT_EQ(cuda.cuMemFree_v2(second), 0);
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(cuda_contract_an_event_is_what_it_was_when_the_wait_was_called) {
  const Cuda cuda;
  cuda.Use(0);
  void *held = cuda.NewStream(), *waits = cuda.NewStream(), *is_free = cuda.NewStream(), *event = cuda.NewEvent();
  EXPECT_EQ(cuda.cuEventQuery(event), 0);  // never recorded
  EXPECT_EQ(cuda.cuStreamWaitEvent(waits, event, 0), 0);
  EXPECT_EQ(cuda.cuStreamSynchronize(waits), 0);
  Gate gate(cuda, held);
  EXPECT_EQ(cuda.cuEventRecord(event, held), 0);
  EXPECT_EQ(cuda.cuEventQuery(event), kNotReady);
  EXPECT_EQ(cuda.cuStreamWaitEvent(waits, event, 0), 0);
  EXPECT_EQ(cuda.cuEventRecord(event, is_free), 0);
  EXPECT_EQ(cuda.cuEventSynchronize(event), 0);
  EXPECT_EQ(cuda.cuEventQuery(event), 0);
  EXPECT_EQ(cuda.cuStreamQuery(waits), kNotReady);
  EXPECT_EQ(cuda.cuEventDestroy_v2(event), 0);  // the wait goes on
  EXPECT_EQ(cuda.cuStreamQuery(waits), kNotReady);
  gate.Open();
  EXPECT_EQ(cuda.cuStreamSynchronize(waits), 0);
  EXPECT_EQ(cuda.cuStreamSynchronize(held), 0);
}

TEST(cuda_contract_an_event_orders_streams) {
  const Cuda cuda;
  const Fakes fakes;
  cuda.Use(0);
  void *writes = cuda.NewStream(), *reads = cuda.NewStream(), *event = cuda.NewEvent();
  const uint64_t from = cuda.NewMemory(Numbers(5000, 3), writes), to = cuda.NewMemory(20000),
                 out = cuda.NewMemory(20000);
  for (int i = 0; i < 5; ++i) {
    Gate gate(cuda, writes);
    EXPECT_EQ(cuda.cuMemcpyDtoDAsync_v2(to, from, 20000, writes), 0);
    EXPECT_EQ(cuda.cuEventRecord(event, writes), 0);
    EXPECT_EQ(cuda.cuStreamWaitEvent(reads, event, 0), 0);
    EXPECT_EQ(cuda.cuMemcpyDtoDAsync_v2(out, to, 20000, reads), 0);
    gate.Open();
    EXPECT(cuda.Read<int>(out, 5000, reads) == Numbers(5000, 3));
  }
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(cuda_contract_timed_events_know_the_time_between_them) {
  const Cuda cuda;
  cuda.Use(0);
  void *stream = cuda.NewStream(), *untimed = cuda.NewEvent(), *first = nullptr, *second = nullptr;
  EXPECT_EQ(cuda.cuEventCreate(&first, 0), 0);
  EXPECT_EQ(cuda.cuEventCreate(&second, 0), 0);
  const uint64_t from = cuda.NewMemory(Numbers(5000, 3), stream), to = cuda.NewMemory(20000);
  float ms = -1;
  EXPECT_EQ(cuda.cuEventElapsedTime(&ms, first, second), kInvalidHandle);  // nothing was recorded
  {
    Gate gate(cuda, stream);
    EXPECT_EQ(cuda.cuEventRecord(first, stream), 0);
    EXPECT_EQ(cuda.cuEventElapsedTime(&ms, first, first), kNotReady);
    EXPECT_EQ(cuda.cuMemcpyDtoDAsync_v2(to, from, 20000, stream), 0);
    EXPECT_EQ(cuda.cuEventRecord(second, stream), 0);
    EXPECT_EQ(cuda.cuEventRecord(untimed, stream), 0);
    gate.Open();
    EXPECT_EQ(cuda.cuStreamSynchronize(stream), 0);
  }
  EXPECT_EQ(cuda.cuEventElapsedTime(&ms, first, second), 0);
  EXPECT(ms > 0 && ms < 10'000);
  EXPECT_EQ(cuda.cuEventElapsedTime(&ms, first, untimed), kInvalidHandle);
}

TEST(cuda_contract_streams_are_destroyed_when_their_work_is_done) {
  const Cuda cuda;
  cuda.Use(0);
  void *stream = cuda.NewStream(), *other = cuda.NewStream(), *event = cuda.NewEvent();
  const uint64_t memory = cuda.NewMemory(64);
  Gate gate(cuda, stream);
  EXPECT_EQ(cuda.cuMemsetD8Async(memory, 5, 64, stream), 0);
  EXPECT_EQ(cuda.cuEventRecord(event, stream), 0);
  EXPECT_EQ(cuda.cuStreamDestroy_v2(stream), 0);
  EXPECT_EQ(cuda.cuStreamWaitEvent(other, event, 0), 0);
  gate.Open();
  EXPECT(cuda.Read<char>(memory, 64, other) == std::vector<char>(64, 5));
}

TEST(cuda_contract_devices) {
  const Cuda cuda;
  EXPECT_EQ(cuda.cuInit(0), 0);
  int count = 0, device = -1, major = 0;
  EXPECT_EQ(cuda.cuDeviceGetCount(&count), 0);
  EXPECT(count >= 1);
  EXPECT_EQ(cuda.cuDeviceGet(&device, 0), 0);
  EXPECT_EQ(cuda.cuDeviceGet(&device, count), 101);
  EXPECT_EQ(cuda.cuDeviceGetAttribute(&major, 75, 0), 0);
  EXPECT(major >= 5);
  unsigned char uuids[2][16] = {};
  for (int d = 0; d < std::min(count, 2); ++d) EXPECT_EQ(cuda.cuDeviceGetUuid_v2(uuids[d], d), 0);
  EXPECT(std::memcmp(uuids[0], uuids[1], 16) != 0);
}

// ---- what only the fake does

TEST(fake_cuda_without_an_event_data_are_wrong) {
  NEEDS_FAKES();
  const Cuda cuda;
  cuda.Use(0);
  void *first = cuda.NewStream(), *second = cuda.NewStream();
  const uint64_t from = cuda.NewMemory(Numbers(100), first), to = cuda.NewMemory(400), out = cuda.NewMemory(400);
  {
    const Fakes fakes;
    EXPECT_EQ(cuda.cuMemcpyDtoDAsync_v2(to, from, 400, first), 0);
    EXPECT_EQ(cuda.cuMemcpyDtoDAsync_v2(out, to, 400, second), 0);  // reads what comes
    EXPECT(fakes.NewFault().find("reads what another stream writes") != std::string::npos);
    EXPECT(cuda.Read<int>(out, 100, second) == std::vector<int>(100, static_cast<int>(0xEEEEEEEE)));
    EXPECT(cuda.Read<int>(to, 100, first) == Numbers(100));
  }
  {
    const Fakes fakes;
    EXPECT_EQ(cuda.cuMemcpyDtoDAsync_v2(out, to, 400, first), 0);
    EXPECT_EQ(cuda.cuMemsetD8Async(to, 0, 400, second), 0);  // overwrites what is read
    EXPECT(fakes.NewFault().find("writes what another stream reads") != std::string::npos);
    EXPECT_EQ(cuda.cuStreamSynchronize(first), 0);
    EXPECT_EQ(cuda.cuStreamSynchronize(second), 0);
  }
  // The host's knowledge orders, too.
  const Fakes fakes;
  EXPECT_EQ(cuda.cuMemsetD8Async(to, 0, 400, second), 0);
  while (cuda.cuStreamQuery(second) != 0) std::this_thread::yield();
  EXPECT_EQ(cuda.cuMemsetD8Async(to, 1, 400, first), 0);
  std::binary_semaphore done{0};
  const auto tell = [](void* done) { static_cast<std::binary_semaphore*>(done)->release(); };
  EXPECT_EQ(cuda.cuLaunchHostFunc(first, tell, &done), 0);
  done.acquire();
  EXPECT_EQ(cuda.cuMemsetD8Async(to, 2, 400, second), 0);
  EXPECT(cuda.Read<char>(to, 400, second) == std::vector<char>(400, 2));
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(fake_cuda_what_is_under_way_is_poison) {
  NEEDS_FAKES();
  const Cuda cuda;
  const Fakes fakes;
  cuda.Use(0);
  void* stream = cuda.NewStream();
  const uint64_t memory = cuda.NewMemory(Numbers(10), stream);
  std::vector<int> here(10);
  fakes.fake_cuda_stall(1);
  EXPECT_EQ(cuda.cuMemcpyDtoHAsync_v2(here.data(), memory, 40, stream), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  EXPECT_EQ(cuda.cuStreamQuery(stream), kNotReady);
  EXPECT(here == std::vector<int>(10));  // has not begun
  fakes.fake_cuda_stall(0);
  EXPECT_EQ(cuda.cuStreamSynchronize(stream), 0);
  EXPECT(here == Numbers(10));
  EXPECT(cuda.Read<int>(cuda.NewMemory(40), 10, stream) == std::vector<int>(10, static_cast<int>(0xEEEEEEEE)));
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(fake_cuda_memory_that_is_not_there) {
  NEEDS_FAKES();
  const Cuda cuda;
  cuda.Use(0);
  void *stream = cuda.NewStream(), *other = cuda.NewStream();
  const uint64_t memory = cuda.NewMemory(64), gone = cuda.NewMemory(64);
  EXPECT_EQ(cuda.cuMemFree_v2(gone), 0);
  EXPECT_EQ(cuda.cuMemFree_v2(gone), 1);
  int here[16] = {};
  uint64_t later = 0;
  EXPECT_EQ(cuda.cuMemAllocAsync(&later, 64, stream), 0);
  cuda.Use(1);
  const uint64_t elsewhere = cuda.NewMemory(64);
  cuda.Use(0);
  const struct {
    uint64_t to;
    size_t bytes;
    const char* words;
  } kCases[] = {{gone, 64, "freed memory"},
                {reinterpret_cast<uint64_t>(here), 64, "memory that no device knows"},
                {memory, 65, "memory behind the end of a block"}};
  for (const auto& one : kCases) {
    const Fakes fakes;
    EXPECT_EQ(cuda.cuMemsetD8Async(one.to, 0, one.bytes, stream), 0);
    EXPECT_EQ(cuda.cuStreamSynchronize(stream), 0);
    EXPECT(fakes.NewFault().find(one.words) != std::string::npos);
  }
  const Fakes fakes;
  EXPECT_EQ(cuda.cuMemAllocAsync(&later, 64, stream), 0);
  EXPECT_EQ(cuda.cuMemsetD8Async(later, 0, 64, other), 0);
  EXPECT(fakes.NewFault() != "");
  EXPECT_EQ(cuda.cuMemcpyDtoDAsync_v2(elsewhere, memory, 64, stream), 0);  // all devices have one address space
  EXPECT_EQ(cuda.cuStreamSynchronize(stream), 0);
  EXPECT_EQ(cuda.cuStreamSynchronize(other), 0);
}

TEST(fake_cuda_controls) {
  NEEDS_FAKES();
  const Cuda cuda;
  const Fakes fakes;
  cuda.Use(0);
  void *stream = cuda.NewStream(), *event = cuda.NewEvent();
  uint64_t memory = 0;
  fakes.fake_cuda_fail_next("cuMemAlloc_v2", 2);
  EXPECT_EQ(cuda.cuMemAlloc_v2(&memory, 64), 2);
  EXPECT_EQ(cuda.cuMemAlloc_v2(&memory, 64), 0);
  EXPECT_EQ(cuda.cuMemAlloc_v2(&memory, size_t{1} << 40), 2);
  memory = cuda.NewMemory(64);
  fakes.fake_cuda_record_start();
  EXPECT_EQ(cuda.cuMemsetD8Async(memory, 0, 64, stream), 0);
  EXPECT_EQ(cuda.cuEventRecord(event, stream), 0);
  EXPECT_EQ(cuda.cuStreamWaitEvent(stream, event, 0), 0);
  EXPECT_EQ(cuda.cuEventSynchronize(event), 0);
  const std::string s = "stream " + std::to_string(fakes.fake_cuda_number(stream)) + ": ";
  const std::string e = "event " + std::to_string(fakes.fake_cuda_number(event)) + "\n";
  EXPECT_EQ(fakes.Record(),
            s + "memset 64\n" + s + "record " + e + s + "wait " + e + "host sync: cuEventSynchronize " + e);
  EXPECT_EQ(fakes.NewFault(), "");

  int capturing = 0;
  fakes.fake_cuda_set_capturing(stream, 1);
  EXPECT_EQ(cuda.cuStreamIsCapturing(stream, &capturing), 0);
  EXPECT_EQ(capturing, 1);
  EXPECT_EQ(cuda.cuStreamQuery(stream), 900);
  EXPECT_EQ(cuda.cuStreamWaitEvent(stream, event, 0), 905);
  EXPECT_EQ(fakes.NewFault(), "");
  EXPECT_EQ(cuda.cuEventRecord(event, stream), 900);
  EXPECT(fakes.NewFault() != "");
  fakes.fake_cuda_set_capturing(stream, 0);

  EXPECT_EQ(cuda.cuEventDestroy_v2(event), 0);
  EXPECT_EQ(cuda.cuEventQuery(event), kInvalidHandle);
  EXPECT_EQ(cuda.cuStreamDestroy_v2(stream), 0);
  EXPECT_EQ(cuda.cuStreamQuery(stream), kInvalidHandle);
}

// ---- kernels

struct PackEntry {
  uint64_t from, to;
  uint32_t bytes, first_block;
};

// Packs 3 and then `elems` elements, each part behind a gap of an element.
template <class T>
std::vector<T> Pack(const char* name, const std::vector<T>& data, float scale) {
  const Cuda cuda;
  cuda.Use(0);
  void *stream = cuda.NewStream(), *module = nullptr, *function = nullptr;
  const std::string text = std::string(".version 7.0\n.target sm_50\n.visible .entry ") + name + "(.param .u32 n) {}";
  EXPECT_EQ(cuda.cuModuleLoadData(&module, text.c_str()), 0);
  EXPECT_EQ(cuda.cuModuleGetFunction(&function, module, "pack_other"), 500);
  EXPECT_EQ(cuda.cuModuleGetFunction(&function, module, name), 0);
  const uint64_t from = cuda.NewMemory(data, stream), to = cuda.NewMemory((data.size() + 2) * sizeof(T));
  EXPECT_EQ(cuda.cuMemsetD8Async(to, 0, (data.size() + 2) * sizeof(T), stream), 0);
  PackEntry table[168] = {
      {from, to + sizeof(T), 3 * sizeof(T), 0},
      {from + 3 * sizeof(T), to + 5 * sizeof(T), static_cast<uint32_t>((data.size() - 3) * sizeof(T)), 1}};
  uint32_t entries = 2;
  void* parameters[] = {table, &entries, &scale};
  EXPECT_EQ(cuda.cuLaunchKernel(function, 2, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr), 0);
  return cuda.Read<T>(to, data.size() + 2, stream);
}

TEST(fake_cuda_packs) {
  NEEDS_FAKES();
  const Fakes fakes;
  EXPECT(Pack<float>("pack_f32", {1, 2, 3, 4, 5}, 0.5f) == (std::vector<float>{0, 0.5f, 1, 1.5f, 0, 2, 2.5f}));
  EXPECT(Pack<char>("pack_bytes", {1, 2, 3, 4, 5}, 0.5f) == (std::vector<char>{0, 1, 2, 3, 0, 4, 5}));
  const float third = 1.0f / 3;
  std::vector<uint16_t> half, bfloat, thirds_half(1), thirds_bfloat(1);
  for (int i = 0; i < 50; ++i) {
    half.push_back(HalfFromFloat(static_cast<float>(i)));
    bfloat.push_back(Bfloat16FromFloat(static_cast<float>(i)));
    thirds_half.push_back(HalfFromFloat(static_cast<float>(i) * third));
    thirds_bfloat.push_back(Bfloat16FromFloat(static_cast<float>(i) * third));
    if (i != 2) continue;
    thirds_half.push_back(0);
    thirds_bfloat.push_back(0);
  }
  EXPECT(Pack("pack_f16", half, third) == thirds_half);
  EXPECT(Pack("pack_bf16", bfloat, third) == thirds_bfloat);
  EXPECT_EQ(fakes.NewFault(), "");
}

}  // namespace
}  // namespace hvd::test::backend_cuda_fake
