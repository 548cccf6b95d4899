// A GPU for TensorFlow, plugged in (tf.config.experimental.load_pluggable_device_library), without a GPU: TensorFlow
// places operators on it, allocates in its memory and copies to and from it as with a real one. Addresses in its memory
// cannot be read or written by the host: whoever takes them for the host's dies. What is behind them is mapped a second
// time, for copies and for the one kernel that there is, Neg, which makes tensors that lie on the device.
//
// It works at once, so it tells nothing about the order of streams; over the fake CUDA driver it does (over_cuda.h).
#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "frameworks/tensorflow/c_api.h"
#include "native/frameworks/tensorflow/fake/over_cuda.h"
#include "native/frameworks/tensorflow/fake/stream_executor.h"

namespace {

using namespace fake_tensorflow;

constexpr size_t kBytes = size_t{1} << 32;  // of addresses; touched pages take memory
constexpr unsigned char kPoison = 0xA5;

class Window {
 public:
  Window() {
    const int file = memfd_create("fake GPU of TensorFlow", 0);
    if (file < 0 || ftruncate64(file, kBytes) != 0) std::abort();
    outside_ = Map(file, PROT_NONE);
    inside_ = Map(file, PROT_READ | PROT_WRITE);
  }
  // Poisoned. Nothing is given back: TensorFlow's own allocator takes large pieces and keeps them.
  void* Allocate(size_t size) {
    const size_t at = used_.fetch_add((size + 255) / 256 * 256);
    if (at + size > kBytes) return nullptr;
    std::memset(inside_ + at, kPoison, size);
    return outside_ + at;
  }
  // For this file alone.
  char* Inside(const void* address) const {
    const auto at = static_cast<size_t>(static_cast<const char*>(address) - outside_);
    if (at >= kBytes) std::abort();  // the host's memory where the device's was expected
    return inside_ + at;
  }

 private:
  static char* Map(int file, int protection) {
    void* at = mmap(nullptr, kBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED) std::abort();
    return static_cast<char*>(at);
  }

  char *outside_ = nullptr, *inside_ = nullptr;
  std::atomic<size_t> used_{0};
};

Window& Gpu() {
  static auto* const kWindow = new Window;  // TensorFlow is never done with it
  return *kWindow;
}

char* Inside(const Memory* memory) { return Gpu().Inside(memory->opaque); }

// ---- what TensorFlow asks

void Allocate(const Device*, uint64_t size, int64_t, Memory* memory) {
  memory->struct_size = SizeUpTo(&Memory::payload);
  memory->opaque = Gpu().Allocate(size);
  memory->size = memory->opaque == nullptr ? 0 : size;
}

template <class Handle>
void Create(const Device*, Handle** handle, Status*) {
  *handle = reinterpret_cast<Handle*>(new char);
}
template <class Handle>
void Destroy(const Device*, Handle* handle) {
  delete reinterpret_cast<char*>(handle);
}
template <class... Arguments>
void Nothing(Arguments...) {}

void ToHost(const Device*, void* to, const Memory* from, uint64_t size, Status*) {
  std::memcpy(to, Inside(from), size);
}
void ToDevice(const Device*, Memory* to, const void* from, uint64_t size, Status*) {
  std::memcpy(Inside(to), from, size);
}
void Within(const Device*, Memory* to, const Memory* from, uint64_t size, Status*) {
  std::memmove(Inside(to), Inside(from), size);
}

void Fill(const Device*, Stream*, Memory* memory, uint8_t pattern, uint64_t size, Status*) {
  std::memset(Inside(memory), pattern, size);
}
void Fill32(const Device*, Stream*, Memory* memory, uint32_t pattern, uint64_t size, Status*) {
  for (uint64_t at = 0; at + sizeof pattern <= size; at += sizeof pattern)
    std::memcpy(Inside(memory) + at, &pattern, sizeof pattern);
}

void MakeExecutor(const Platform*, ExecutorParams* params, Status*) {
  Executor& e = *params->executor;
  e = {};
  e.struct_size = SizeUpTo(&Executor::host_callback);
  e.allocate = Allocate;
  e.deallocate = Nothing;
  e.host_memory_allocate = [](const Device*, uint64_t size) { return std::malloc(size); };
  e.host_memory_deallocate = [](const Device*, void* memory) { std::free(memory); };
  e.get_allocator_stats = [](const Device*, void*) -> unsigned char { return 0; };
  e.device_memory_usage = [](const Device*, int64_t* free, int64_t* total) -> unsigned char {
    *free = *total = kBytes;
    return 1;
  };
  e.create_stream = Create;
  e.destroy_stream = Destroy;
  e.create_stream_dependency = Nothing;
  e.get_stream_status = Nothing;
  e.create_event = Create;
  e.destroy_event = Destroy;
  e.get_event_status = [](const Device*, Event*) { return kEventComplete; };
  e.record_event = Nothing;
  e.wait_for_event = Nothing;
  e.create_timer = Create;
  e.destroy_timer = Destroy;
  e.start_timer = Nothing;
  e.stop_timer = Nothing;
  e.memcpy_dtoh = [](const Device* d, Stream*, void* to, const Memory* from, uint64_t size, Status* s) {
    ToHost(d, to, from, size, s);
  };
  e.memcpy_htod = [](const Device* d, Stream*, Memory* to, const void* from, uint64_t size, Status* s) {
    ToDevice(d, to, from, size, s);
  };
  e.memcpy_dtod = [](const Device* d, Stream*, Memory* to, const Memory* from, uint64_t size, Status* s) {
    Within(d, to, from, size, s);
  };
  e.sync_memcpy_dtoh = ToHost;
  e.sync_memcpy_htod = ToDevice;
  e.sync_memcpy_dtod = Within;
  e.block_host_for_event = Nothing;
  e.block_host_until_done = Nothing;
  e.synchronize_all_activity = Nothing;
  e.mem_zero = [](const Device* d, Stream* stream, Memory* memory, uint64_t size, Status* s) {
    Fill(d, stream, memory, 0, size, s);
  };
  e.memset = Fill;
  e.memset32 = Fill32;
  e.host_callback = [](const Device*, Stream*, void (*callback)(void*, Status*), void* argument) -> unsigned char {
    auto* status = hvd::frameworks::tensorflow::tf.TF_NewStatus();
    callback(argument, reinterpret_cast<Status*>(status));
    hvd::frameworks::tensorflow::tf.TF_DeleteStatus(status);
    return 1;
  };
  if (OverCuda()) PutOverCuda(&e);
}

void MakeDevice(const Platform*, DeviceParams* params, Status*) {
  params->device->struct_size = SizeUpTo(&Device::pci_bus_id);
  params->device->hardware_name = "fake";
  params->device->device_vendor = "fake";
  params->device->pci_bus_id = "0000:00:00.0";
}

void MakeDeviceFunctions(const Platform*, DeviceFunctionsParams* params, Status*) {
  *params->functions = {};
  params->functions->struct_size = SizeUpTo(&DeviceFunctions::get_gflops);
}

void MakeTimerFunctions(const Platform*, TimerFunctions* functions, Status*) {
  functions->struct_size = SizeUpTo(&TimerFunctions::nanoseconds);
  functions->nanoseconds = [](Timer*) -> uint64_t { return 0; };
}

// ---- a kernel

void Negate(void*, TF_OpKernelContext* context) {
  using namespace hvd::frameworks::tensorflow;
  const StatusPtr status = NewStatus();
  TF_Tensor* in = nullptr;
  tf.TF_GetInput(context, 0, &in, status.get());
  const TensorPtr input(in);
  int64_t extents[8] = {};
  const int rank = tf.TF_NumDims(in);
  for (int d = 0; d < rank && d < 8; ++d) extents[d] = tf.TF_Dim(in, d);
  const size_t bytes = tf.TF_TensorByteSize(in);
  const TensorPtr output(tf.TF_AllocateOutput(context, 0, tf.TF_TensorType(in), extents, rank, bytes, status.get()));
  if (!Ok(status)) return tf.TF_OpKernelContext_Failure(context, status.get());
  if (bytes == 0) return;
  if (OverCuda()) {
    using StreamFn = Stream* (*)(TF_OpKernelContext*, TF_Status*);
    const auto stream_of = reinterpret_cast<StreamFn>(
        dlsym(dlopen("libtensorflow_framework.so.2", RTLD_NOLOAD | RTLD_LAZY), "TF_GetStream"));
    return NegateOverCuda(stream_of(context, status.get()), tf.TF_TensorData(in), tf.TF_TensorData(output.get()),
                          bytes);
  }
  const auto* from = reinterpret_cast<const float*>(Gpu().Inside(tf.TF_TensorData(in)));
  auto* to = reinterpret_cast<float*>(Gpu().Inside(tf.TF_TensorData(output.get())));
  for (size_t i = 0; i < bytes / sizeof(float); ++i) to[i] = -from[i];
}

}  // namespace

#define FAKE_EXPORTED extern "C" __attribute__((visibility("default")))

FAKE_EXPORTED void SE_InitPlugin(RegistrationParams* params, Status*) {
  Platform& platform = *params->platform;
  platform.struct_size = SizeUpTo(&Platform::force_memory_growth);
  platform.name = "FAKE";
  platform.type = "GPU";
  platform.use_bfc_allocator = 1;
  platform.force_memory_growth = 1;
  PlatformFunctions& functions = *params->functions;
  functions.struct_size = SizeUpTo(&PlatformFunctions::destroy_timer_fns);
  functions.get_device_count = [](const Platform*, int* count, Status*) { *count = 1; };
  functions.create_device = MakeDevice;
  functions.destroy_device = Nothing;
  functions.create_device_fns = MakeDeviceFunctions;
  functions.destroy_device_fns = Nothing;
  functions.create_stream_executor = MakeExecutor;
  functions.destroy_stream_executor = Nothing;
  functions.create_timer_fns = MakeTimerFunctions;
  functions.destroy_timer_fns = Nothing;
  params->destroy_platform = Nothing;
  params->destroy_platform_fns = Nothing;
}

FAKE_EXPORTED void TF_InitKernel() {
  using namespace hvd::frameworks::tensorflow;
  if (!Bind().empty()) std::abort();
  const StatusPtr status = NewStatus();
  tf.TF_RegisterKernelBuilder(
      "FakeNeg",
      tf.TF_NewKernelBuilder(
          "Neg", "GPU", [](TF_OpKernelConstruction*) -> void* { return nullptr; }, Negate, [](void*) {}),
      status.get());
  if (!Ok(status)) std::abort();
}
