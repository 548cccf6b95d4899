// HIP for tests: the fake CUDA driver under HIP's names, with what HIP has differently. A thread always has a device, 0
// at first; there are no contexts; the attributes' numbers, the errors' words and the version are HIP's; modules are
// code objects; a thread's last failure is kept until somebody asks for it. Functions that are to fail
// (fake_cuda_fail_next, FAKE_CUDA_FAIL) are named as HIP names them.
#include "native/backend/cuda/fake/hip/fake_hip.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "native/backend/cuda/fake/cuda/fake_cuda_control.h"
#include "native/backend/cuda/fake/cuda/fake_cuda_memory.h"

namespace fake {
namespace {

thread_local int last_failure = kSuccess;
[[maybe_unused]] const bool kPoolsOrderNoStreams = gives_again_at_once = true;

int Begin(const char* function) {
  if (current_device < 0) current_device = 0;
  return Enter(function);
}
int Told(int code) {
  if (code != kSuccess && code != kNotReady) last_failure = code;
  return code;
}

struct Words {
  int code;
  const char* name;
  const char* text;
};
constexpr std::array<Words, 9> kWords = {{
    {kSuccess, "hipSuccess", "no error"},
    {kInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {kOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {kNotInitialized, "hipErrorNotInitialized", "initialization error"},
    {kInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {kInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {kInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {kNotFound, "hipErrorNotFound", "named symbol not found"},
    {kNotReady, "hipErrorNotReady", "device not ready"},
}};
int Say(int code, const char** text, const char* Words::* which) {
  for (const Words& words : kWords) {
    if (words.code != code) continue;
    *text = words.*which;
    return kSuccess;
  }
  *text = "unknown error";
  return kSuccess;
}

// HIP's number of an attribute -> CUDA's. -1: no such attribute.
int AttributeOf(int number) {
  switch (number) {
    case 23:
      return 75;  // compute capability
    case 61:
      return 76;
    case 88:
      return 115;  // hipMallocAsync
    default:
      return -1;
  }
}

}  // namespace
}  // namespace fake

using namespace fake;  // NOLINT: the functions have to be global

// HIP's function is CUDA's, with other types of the same form.
#define FORWARD(name, to, parameters, arguments)            \
  extern "C" int to parameters;                             \
  EXPORT int name parameters {                              \
    if (const int code_ = Begin(#name)) return Told(code_); \
    return Told(to arguments);                              \
  }

FORWARD(hipInit, cuInit, (unsigned flags), (flags))
FORWARD(hipGetDeviceCount, cuDeviceGetCount, (int* count), (count))
FORWARD(hipDeviceGet, cuDeviceGet, (int* device, int ordinal), (device, ordinal))
FORWARD(hipDeviceGetName, cuDeviceGetName, (char* name, int bytes, int device), (name, bytes, device))
FORWARD(hipDeviceGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int* least, int* most), (least, most))
FORWARD(hipStreamCreateWithPriority, cuStreamCreateWithPriority, (void** made, unsigned flags, int priority),
        (made, flags, priority))
FORWARD(hipStreamCreateWithFlags, cuStreamCreate, (void** made, unsigned flags), (made, flags))
FORWARD(hipStreamDestroy, cuStreamDestroy_v2, (void* stream), (stream))
FORWARD(hipStreamSynchronize, cuStreamSynchronize, (void* stream), (stream))
FORWARD(hipStreamWaitEvent, cuStreamWaitEvent, (void* stream, void* event, unsigned flags), (stream, event, flags))
FORWARD(hipStreamIsCapturing, cuStreamIsCapturing, (void* stream, int* status), (stream, status))
FORWARD(hipLaunchHostFunc, cuLaunchHostFunc, (void* stream, void (*function)(void*), void* argument),
        (stream, function, argument))
FORWARD(hipEventCreateWithFlags, cuEventCreate, (void** made, unsigned flags), (made, flags))
FORWARD(hipEventDestroy, cuEventDestroy_v2, (void* event), (event))
FORWARD(hipEventRecord, cuEventRecord, (void* event, void* stream), (event, stream))
FORWARD(hipEventQuery, cuEventQuery, (void* event), (event))
FORWARD(hipEventElapsedTime, cuEventElapsedTime, (float* ms, void* from, void* to), (ms, from, to))
FORWARD(hipMemGetInfo, cuMemGetInfo_v2, (size_t* free, size_t* total), (free, total))
FORWARD(hipMalloc, cuMemAlloc_v2, (uint64_t* made, size_t bytes), (made, bytes))
FORWARD(hipFree, cuMemFree_v2, (uint64_t address), (address))
FORWARD(hipMallocAsync, cuMemAllocAsync, (uint64_t* made, size_t bytes, void* stream), (made, bytes, stream))
FORWARD(hipFreeAsync, cuMemFreeAsync, (uint64_t address, void* stream), (address, stream))
FORWARD(hipHostFree, cuMemFreeHost, (void* pointer), (pointer))
FORWARD(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (uint64_t to, const void* from, size_t bytes, void* stream),
        (to, from, bytes, stream))
FORWARD(hipMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void* to, uint64_t from, size_t bytes, void* stream),
        (to, from, bytes, stream))
FORWARD(hipMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t bytes, void* stream),
        (to, from, bytes, stream))
FORWARD(hipMemsetD32Async, cuMemsetD32Async, (uint64_t to, unsigned value, size_t count, void* stream),
        (to, value, count, stream))
FORWARD(hipModuleGetFunction, cuModuleGetFunction, (void** made, void* module, const char* name), (made, module, name))
FORWARD(hipModuleLaunchKernel, cuLaunchKernel,
        (void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
         unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void** parameters, void** more),
        (function, blocks_x, blocks_y, blocks_z, threads_x, threads_y, threads_z, shared, stream, parameters, more))

extern "C" int cuDeviceGetUuid(unsigned char* uuid, int device);
extern "C" int cuDevicePrimaryCtxRetain(void** context, int device);
extern "C" int cuCtxSetCurrent(void* context);
extern "C" int cuDeviceGetAttribute(int* value, int attribute, int device);
extern "C" int cuMemHostAlloc(void** made, size_t bytes, unsigned flags);
extern "C" int cuModuleLoadDataEx(void** made, const void* image, unsigned n, int* options, void** values);

EXPORT int hipDriverGetVersion(int* version) {
  static const int kVersion = static_cast<int>(Number("FAKE_HIP_VERSION", 60'240'091));
  *version = kVersion;
  return kSuccess;
}
EXPORT int hipDrvGetErrorName(int code, const char** text) { return Say(code, text, &Words::name); }
EXPORT int hipDrvGetErrorString(int code, const char** text) { return Say(code, text, &Words::text); }
EXPORT int hipGetLastError() {
  const int code = last_failure;
  last_failure = kSuccess;
  return code;
}
EXPORT int hipPeekAtLastError() { return last_failure; }
EXPORT int hipGetDevice(int* device) {
  if (const int code = Begin(__func__)) return Told(code);
  *device = current_device;
  return kSuccess;
}
EXPORT int hipSetDevice(int device) {
  if (const int code = Begin(__func__)) return Told(code);
  void* context = nullptr;
  if (const int code = cuDevicePrimaryCtxRetain(&context, device)) return Told(code);
  return Told(cuCtxSetCurrent(context));
}
// FAKE_HIP_NO_UUID: the GPUs have no number of their own, and so all the same.
EXPORT int hipDeviceGetUuid(unsigned char* uuid, int device) {
  if (const int code = Begin(__func__)) return Told(code);
  if (const int code = cuDeviceGetUuid(uuid, device)) return Told(code);
  if (std::getenv("FAKE_HIP_NO_UUID") != nullptr) std::memcpy(uuid, "GPU-XX\0\0\0\0\0\0\0\0\0", 16);
  return kSuccess;
}
// As if they were parts of one GPU.
EXPORT int hipDeviceGetPCIBusId(char* place, int bytes, int device) {
  if (const int code = Begin(__func__)) return Told(code);
  int there = 0;
  if (const int code = cuDeviceGetAttribute(&there, 1, device)) return Told(code);
  return Told(Give("0000:c1:00." + std::to_string(device), place, bytes) < bytes ? kSuccess : kInvalidValue);
}
EXPORT int hipGetDevicePropertiesR0600(char* properties, int device) {
  if (const int code = Begin(__func__)) return Told(code);
  int there = 0;
  if (const int code = cuDeviceGetAttribute(&there, 1, device)) return Told(code);
  std::memset(properties, 0, 1472);
  std::strcpy(properties + 1160, kArchitecture);  // gcnArchName
  return kSuccess;
}
EXPORT int hipDeviceGetAttribute(int* value, int attribute, int device) {
  if (const int code = Begin(__func__)) return Told(code);
  const int number = AttributeOf(attribute);
  return Told(number < 0 ? kInvalidValue : cuDeviceGetAttribute(value, number, device));
}
// Stricter than HIP, which gives memory that is not coherent where the flags do not say "mapped".
EXPORT int hipHostMalloc(void** made, size_t bytes, unsigned flags) {
  if (const int code = Begin(__func__)) return Told(code);
  constexpr unsigned kMapped = 2;
  return Told((flags & kMapped) == 0 ? kInvalidValue : cuMemHostAlloc(made, bytes, flags));
}
EXPORT int hipModuleLoadDataEx(void** made, const void* image, unsigned n, int* options, void** values) {
  if (const int code = Begin(__func__)) return Told(code);
  if (std::strncmp(static_cast<const char*>(image), kCodeObject, std::strlen(kCodeObject)) != 0)
    return Told(kInvalidImage);
  return Told(cuModuleLoadDataEx(made, image, n, options, values));
}
