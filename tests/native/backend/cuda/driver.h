// The functions of the CUDA driver and of NCCL that the contract's tests call, by their own declarations: who gets one
// wrong in src/ does not get it wrong here, too.
#pragma once

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "native/backend/cuda/libraries.h"

namespace hvd::test {

#define BOUND(name, ...) int (*name)(__VA_ARGS__) = Bound<int(__VA_ARGS__)>(#name)

class Cuda {
  Library library_{PathOfCuda()};
  template <class F>
  F* Bound(const char* name) const {
    F* function = nullptr;
    library_.Bind(name, function);
    return function;
  }

 public:
  BOUND(cuInit, unsigned);
  BOUND(cuDeviceGet, int*, int);
  BOUND(cuDeviceGetCount, int*);
  BOUND(cuDeviceGetUuid_v2, unsigned char*, int);
  BOUND(cuDeviceGetAttribute, int*, int, int);
  BOUND(cuDevicePrimaryCtxRetain, void**, int);
  BOUND(cuCtxSetCurrent, void*);
  BOUND(cuCtxGetCurrent, void**);
  BOUND(cuMemAlloc_v2, uint64_t*, size_t);
  BOUND(cuMemFree_v2, uint64_t);
  BOUND(cuMemAllocAsync, uint64_t*, size_t, void*);
  BOUND(cuMemFreeAsync, uint64_t, void*);
  BOUND(cuMemHostAlloc, void**, size_t, unsigned);
  BOUND(cuMemFreeHost, void*);
  BOUND(cuMemHostRegister_v2, void*, size_t, unsigned);
  BOUND(cuMemHostUnregister, void*);
  BOUND(cuMemcpyDtoHAsync_v2, void*, uint64_t, size_t, void*);
  BOUND(cuMemcpyHtoDAsync_v2, uint64_t, const void*, size_t, void*);
  BOUND(cuMemcpyDtoDAsync_v2, uint64_t, uint64_t, size_t, void*);
  BOUND(cuMemsetD8Async, uint64_t, unsigned char, size_t, void*);
  BOUND(cuMemsetD16Async, uint64_t, unsigned short, size_t, void*);
  BOUND(cuMemsetD32Async, uint64_t, unsigned, size_t, void*);
  BOUND(cuStreamCreate, void**, unsigned);
  BOUND(cuStreamCreateWithPriority, void**, unsigned, int);
  BOUND(cuCtxGetStreamPriorityRange, int*, int*);
  BOUND(cuStreamDestroy_v2, void*);
  BOUND(cuStreamSynchronize, void*);
  BOUND(cuStreamQuery, void*);
  BOUND(cuStreamWaitEvent, void*, void*, unsigned);
  BOUND(cuStreamIsCapturing, void*, int*);
  BOUND(cuLaunchHostFunc, void*, void (*)(void*), void*);
  BOUND(cuEventCreate, void**, unsigned);
  BOUND(cuEventDestroy_v2, void*);
  BOUND(cuEventRecord, void*, void*);
  BOUND(cuEventQuery, void*);
  BOUND(cuEventSynchronize, void*);
  BOUND(cuEventElapsedTime, float*, void*, void*);
  BOUND(cuModuleLoadData, void**, const void*);
  BOUND(cuModuleGetFunction, void**, void*, const char*);
  BOUND(cuLaunchKernel, void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
        void**);

  // Makes the primary context of a device current in this thread; null: no context.
  void Use(int device) const {
    void* context = nullptr;
    EXPECT_EQ(cuInit(0), 0);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), 0);
    EXPECT_EQ(cuCtxSetCurrent(context), 0);
  }
  void* NewStream() const {
    void* stream = nullptr;
    EXPECT_EQ(cuStreamCreate(&stream, 1), 0);
    return stream;
  }
  void* NewEvent() const {
    void* event = nullptr;
    EXPECT_EQ(cuEventCreate(&event, 2), 0);
    return event;
  }
  uint64_t NewMemory(size_t bytes) const {
    uint64_t address = 0;
    EXPECT_EQ(cuMemAlloc_v2(&address, bytes), 0);
    return address;
  }
  template <class T>
  uint64_t NewMemory(const std::vector<T>& data, void* stream) const {
    const uint64_t address = NewMemory(data.size() * sizeof(T));
    EXPECT_EQ(cuMemcpyHtoDAsync_v2(address, data.data(), data.size() * sizeof(T), stream), 0);
    EXPECT_EQ(cuStreamSynchronize(stream), 0);
    return address;
  }
  // What lies on the device when `stream` is done.
  template <class T>
  std::vector<T> Read(uint64_t address, size_t count, void* stream) const {
    std::vector<T> data(count);
    EXPECT_EQ(cuMemcpyDtoHAsync_v2(data.data(), address, count * sizeof(T), stream), 0);
    EXPECT_EQ(cuStreamSynchronize(stream), 0);
    return data;
  }
};

struct UniqueId {
  char bytes[128];
};
// ncclConfig_t of 2.18.
struct NcclConfig {
  static constexpr int kUndefined = -0x7fffffff - 1;
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = kUndefined, cga_cluster_size = kUndefined, min_ctas = kUndefined, max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};
enum NcclType { kNcclInt32 = 2, kNcclFloat16 = 6, kNcclFloat32 = 7, kNcclBfloat16 = 9 };
enum NcclOp { kNcclSum = 0, kNcclMax = 2, kNcclAverage = 4 };

class Nccl {
  Library library_{PathOfNccl()};
  template <class F>
  F* Bound(const char* name) const {
    F* function = nullptr;
    library_.Bind(name, function);
    return function;
  }

 public:
  BOUND(ncclGetVersion, int*);
  BOUND(ncclGetUniqueId, UniqueId*);
  BOUND(ncclCommInitRank, void**, int, UniqueId, int);
  BOUND(ncclCommInitRankConfig, void**, int, UniqueId, int, NcclConfig*);
  BOUND(ncclCommGetAsyncError, void*, int*);
  BOUND(ncclCommFinalize, void*);
  BOUND(ncclCommDestroy, void*);
  BOUND(ncclCommAbort, void*);
  BOUND(ncclCommCount, void*, int*);
  BOUND(ncclCommUserRank, void*, int*);
  BOUND(ncclGroupStart, );
  BOUND(ncclGroupEnd, );
  BOUND(ncclAllReduce, const void*, void*, size_t, int, int, void*, void*);
  BOUND(ncclBroadcast, const void*, void*, size_t, int, int, void*, void*);
  BOUND(ncclReduce, const void*, void*, size_t, int, int, int, void*, void*);
  BOUND(ncclAllGather, const void*, void*, size_t, int, void*, void*);
  BOUND(ncclReduceScatter, const void*, void*, size_t, int, int, void*, void*);
  BOUND(ncclSend, const void*, size_t, int, int, void*, void*);
  BOUND(ncclRecv, void*, size_t, int, int, void*, void*);
  BOUND(ncclRedOpCreatePreMulSum, int*, void*, int, int, void*);
  BOUND(ncclRedOpDestroy, int, void*);
  const char* (*ncclGetErrorString)(int) = Bound<const char*(int)>("ncclGetErrorString");
  const char* (*ncclGetLastError)(void*) = Bound<const char*(void*)>("ncclGetLastError");

  // The state of a communicator once it is not in progress any more.
  int Settled(void* comm) const {
    int state = 7;
    while (state == 7) {
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), 0);
      std::this_thread::yield();
    }
    return state;
  }
};

#undef BOUND

}  // namespace hvd::test
