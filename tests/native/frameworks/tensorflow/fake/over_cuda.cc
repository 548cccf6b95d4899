#include "native/frameworks/tensorflow/fake/over_cuda.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "frameworks/tensorflow/c_api.h"
#include "native/backend/cuda/fake/cuda/fake_cuda.h"

namespace fake_tensorflow {
namespace {

constexpr int kNotReady = 600;

void* Library() {
  static void* const kLibrary = [] {
    const char* path = std::getenv("HVD_TEST_CUDA_LIBRARY");
    return path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }();
  return kLibrary;
}

template <class... Arguments>
int Code(const char* name, Arguments... arguments) {
  auto* const function = reinterpret_cast<int (*)(Arguments...)>(dlsym(Library(), name));
  return function == nullptr ? -1 : function(arguments...);
}

template <class... Arguments>
void Call(const char* name, Arguments... arguments) {
  if (Code(name, arguments...) != 0) std::abort();
}

// Makes the rank's device the thread's: each has one of its own.
void Enter() {
  static void* const kContext = [] {
    const char* const rank = std::getenv("HOROVOD_LOCAL_RANK");
    void* context = nullptr;
    Call("cuInit", 0u);
    Call("cuDevicePrimaryCtxRetain", &context, rank == nullptr ? 0 : std::atoi(rank));
    return context;
  }();
  Call("cuCtxSetCurrent", kContext);
}

template <class... Arguments>
void Do(const char* name, Arguments... arguments) {
  Enter();
  Call(name, arguments...);
}

uint64_t AddressOf(const Memory* memory) { return reinterpret_cast<uint64_t>(memory->opaque); }

// A copy that the host waits for.
void Copy(uint64_t to, uint64_t from, uint64_t bytes) {
  Enter();
  void* stream = nullptr;
  Call("cuStreamCreate", &stream, 1u);
  Call("cuMemcpyAsync", to, from, static_cast<size_t>(bytes), stream);
  Call("cuStreamSynchronize", stream);
  Call("cuStreamDestroy_v2", stream);
}
void CopyOn(Stream* stream, uint64_t to, uint64_t from, uint64_t bytes) {
  Do("cuMemcpyAsync", to, from, static_cast<size_t>(bytes), static_cast<void*>(stream));
}
uint64_t Host(const void* address) { return reinterpret_cast<uint64_t>(address); }

void Wait(const Device*, Stream* dependent, Stream* other, Status*) {
  void* event = nullptr;
  Do("cuEventCreate", &event, 2u);
  Call("cuEventRecord", event, static_cast<void*>(other));
  Call("cuStreamWaitEvent", static_cast<void*>(dependent), event, 0u);
  Call("cuEventDestroy_v2", event);
}

struct Callback {
  void (*function)(void*, Status*);
  void* argument;
};
void RunCallback(void* given) {
  using hvd::frameworks::tensorflow::tf;
  auto* const callback = static_cast<Callback*>(given);
  auto* const status = tf.TF_NewStatus();
  callback->function(callback->argument, reinterpret_cast<Status*>(status));
  tf.TF_DeleteStatus(status);
  delete callback;
}

void PutMemory(Executor* e) {
  e->allocate = [](const Device*, uint64_t size, int64_t, Memory* memory) {
    memory->struct_size = SizeUpTo(&Memory::payload);
    uint64_t address = 0;
    Do("cuMemAlloc_v2", &address, static_cast<size_t>(size));
    memory->opaque = reinterpret_cast<void*>(address);
    memory->size = size;
  };
  e->host_memory_allocate = [](const Device*, uint64_t size) {
    void* made = nullptr;
    Do("cuMemHostAlloc", &made, static_cast<size_t>(size), 0u);
    return made;
  };
  e->host_memory_deallocate = [](const Device*, void* memory) { Do("cuMemFreeHost", memory); };
  e->memcpy_dtoh = [](const Device*, Stream* stream, void* to, const Memory* from, uint64_t size, Status*) {
    CopyOn(stream, Host(to), AddressOf(from), size);
  };
  e->memcpy_htod = [](const Device*, Stream* stream, Memory* to, const void* from, uint64_t size, Status*) {
    CopyOn(stream, AddressOf(to), Host(from), size);
  };
  e->memcpy_dtod = [](const Device*, Stream* stream, Memory* to, const Memory* from, uint64_t size, Status*) {
    CopyOn(stream, AddressOf(to), AddressOf(from), size);
  };
  e->sync_memcpy_dtoh = [](const Device*, void* to, const Memory* from, uint64_t size, Status*) {
    Copy(Host(to), AddressOf(from), size);
  };
  e->sync_memcpy_htod = [](const Device*, Memory* to, const void* from, uint64_t size, Status*) {
    Copy(AddressOf(to), Host(from), size);
  };
  e->sync_memcpy_dtod = [](const Device*, Memory* to, const Memory* from, uint64_t size, Status*) {
    Copy(AddressOf(to), AddressOf(from), size);
  };
  e->mem_zero = [](const Device*, Stream* stream, Memory* memory, uint64_t size, Status*) {
    const unsigned char zero = 0;
    Do("cuMemsetD8Async", AddressOf(memory), zero, static_cast<size_t>(size), static_cast<void*>(stream));
  };
  e->memset = [](const Device*, Stream* stream, Memory* memory, uint8_t pattern, uint64_t size, Status*) {
    Do("cuMemsetD8Async", AddressOf(memory), pattern, static_cast<size_t>(size), static_cast<void*>(stream));
  };
  e->memset32 = [](const Device*, Stream* stream, Memory* memory, uint32_t pattern, uint64_t size, Status*) {
    Do("cuMemsetD32Async", AddressOf(memory), pattern, static_cast<size_t>(size / 4), static_cast<void*>(stream));
  };
}

}  // namespace

bool OverCuda() { return Library() != nullptr; }

void PutOverCuda(Executor* e) {
  PutMemory(e);
  e->create_stream = [](const Device*, Stream** made, Status*) {
    Do("cuStreamCreate", reinterpret_cast<void**>(made), 1u);
  };
  e->destroy_stream = [](const Device*, Stream* stream) { Do("cuStreamDestroy_v2", static_cast<void*>(stream)); };
  e->create_stream_dependency = Wait;
  e->create_event = [](const Device*, Event** made, Status*) {
    Do("cuEventCreate", reinterpret_cast<void**>(made), 2u);
  };
  e->destroy_event = [](const Device*, Event* event) { Do("cuEventDestroy_v2", static_cast<void*>(event)); };
  e->get_event_status = [](const Device*, Event* event) {
    const int code = Code("cuEventQuery", static_cast<void*>(event));
    return code == 0 ? kEventComplete : code == kNotReady ? kEventPending : kEventError;
  };
  e->record_event = [](const Device*, Stream* stream, Event* event, Status*) {
    Do("cuEventRecord", static_cast<void*>(event), static_cast<void*>(stream));
  };
  e->wait_for_event = [](const Device*, Stream* stream, Event* event, Status*) {
    Do("cuStreamWaitEvent", static_cast<void*>(stream), static_cast<void*>(event), 0u);
  };
  e->block_host_for_event = [](const Device*, Event* event, Status*) {
    Do("cuEventSynchronize", static_cast<void*>(event));
  };
  e->block_host_until_done = [](const Device*, Stream* stream, Status*) {
    Do("cuStreamSynchronize", static_cast<void*>(stream));
  };
  e->synchronize_all_activity = [](const Device*, Status*) { Do("cuCtxSynchronize"); };
  e->host_callback = [](const Device*, Stream* stream, void (*function)(void*, Status*),
                        void* argument) -> unsigned char {
    void* const callback = new Callback{function, argument};
    Do("cuLaunchHostFunc", static_cast<void*>(stream), &RunCallback, callback);
    return 1;
  };
}

void NegateOverCuda(Stream* stream, const void* from, void* to, size_t bytes) {
  struct Work {
    const float* from;
    float* to;
    size_t count;
  };
  const auto run = [](void* given, int unordered) {
    auto* const work = static_cast<Work*>(given);
    for (size_t i = 0; i < work->count && unordered == 0; ++i) work->to[i] = -work->from[i];
    delete work;
  };
  void (*const function)(void*, int) = run;
  void* const work = new Work{static_cast<const float*>(from), static_cast<float*>(to), bytes / sizeof(float)};
  const fake_cuda_access accesses[] = {{from, bytes, 0}, {to, bytes, 1}};
  const char* const name = "negate";
  Do("fake_cuda_enqueue", static_cast<void*>(stream), function, work, name, &accesses[0], 2);
}

}  // namespace fake_tensorflow
