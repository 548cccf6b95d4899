// A CUDA driver for tests, which needs no GPU. The memory of its devices is memory of the host; its streams are threads
// that do late what was put on them, and what is under way holds poison. Here: devices and contexts.
#include "native/backend/cuda/fake/cuda/fake_cuda.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "native/backend/cuda/fake/cuda/fake_cuda_control.h"

namespace fake {
namespace {

constexpr int kMostDevices = 16;
char contexts[kMostDevices];  // their addresses are the handles

int Devices() {
  static const int kDevices = static_cast<int>(Number("FAKE_CUDA_DEVICES", 8));
  return kDevices < kMostDevices ? kDevices : kMostDevices;
}
bool IsDevice(int device) { return device >= 0 && device < Devices(); }

// Of the environment and the device (FNV-1a).
void GiveUuid(int device, unsigned char uuid[16]) {
  const char* seed = std::getenv("FAKE_CUDA_UUID");
  const std::string name = std::string(seed == nullptr ? "" : seed) + "/" + std::to_string(device);
  uint64_t hash = 0xcbf29ce484222325u;
  for (int half = 0; half < 2; ++half) {
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    std::memcpy(uuid + 8 * half, &hash, 8);
  }
}

struct Words {
  int code;
  const char* name;
  const char* text;
};
constexpr std::array<Words, 15> kWords = {{
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kNoContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kInvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {kCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
}};
const Words* WordsOf(int code) {
  for (const Words& words : kWords) {
    if (words.code == code) return &words;
  }
  return nullptr;
}

}  // namespace
}  // namespace fake

using namespace fake;  // NOLINT: the driver's functions have to be global

EXPORT int cuInit(unsigned flags) {
  ENTER();
  if (flags != 0) return kInvalidValue;
  if (Devices() == 0) return 100;  // CUDA_ERROR_NO_DEVICE
  SetInitialized();
  return kSuccess;
}
EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
EXPORT int cuGetErrorName(int code, const char** text) {
  const Words* words = WordsOf(code);
  *text = words == nullptr ? nullptr : words->name;
  return words == nullptr ? kInvalidValue : kSuccess;
}
EXPORT int cuGetErrorString(int code, const char** text) {
  const Words* words = WordsOf(code);
  *text = words == nullptr ? nullptr : words->text;
  return words == nullptr ? kInvalidValue : kSuccess;
}
EXPORT int cuDeviceGetCount(int* count) {
  ENTER();
  *count = Devices();
  return kSuccess;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  ENTER();
  *device = ordinal;
  return IsDevice(ordinal) ? kSuccess : kInvalidDevice;
}
EXPORT int cuDeviceGetName(char* name, int bytes, int device) {
  ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(bytes), "Fake GPU %d", device);
  return kSuccess;
}
EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  GiveUuid(device, uuid);
  return kSuccess;
}
EXPORT int cuDeviceGetUuid(unsigned char* uuid, int device) {
  ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  GiveUuid(device, uuid);
  return kSuccess;
}
// FAKE_CUDA_MIG: all devices are parts of one GPU.
EXPORT int cuDeviceGetPCIBusId(char* place, int bytes, int device) {
  ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  const int bus = std::getenv("FAKE_CUDA_MIG") != nullptr ? 1 : device + 1;
  return std::snprintf(place, static_cast<size_t>(bytes), "00000000:%02X:00.0", bus) < bytes ? kSuccess : kInvalidValue;
}
// As an H100 would answer. What is not here is not asked for, or 0 on it.
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  switch (attribute) {
    case 1:  // threads of a block
      *value = 1024;
      break;
    case 10:  // threads of a warp
      *value = 32;
      break;
    case 16:  // multiprocessors
      *value = 132;
      break;
    case 33:  // number on the PCI bus
      *value = device + 1;
      break;
    case 41:   // one address space
    case 99:   // memory of the host can be registered
    case 115:  // cuMemAllocAsync
      *value = 1;
      break;
    case 75:  // compute capability
      *value = 9;
      break;
    default:
      *value = 0;
  }
  return kSuccess;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  *context = &contexts[device];
  return kSuccess;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER();
  return IsDevice(device) ? kSuccess : kInvalidDevice;
}
EXPORT int cuCtxSetCurrent(void* context) {
  ENTER();
  if (context == nullptr) {
    current_device = -1;
    return kSuccess;
  }
  const auto device = static_cast<char*>(context) - contexts;
  if (device < 0 || device >= Devices()) return kNoContext;
  current_device = static_cast<int>(device);
  return kSuccess;
}
EXPORT int cuCtxGetCurrent(void** context) {
  ENTER();
  *context = current_device < 0 ? nullptr : &contexts[current_device];
  return kSuccess;
}
EXPORT int cuCtxGetDevice(int* device) {
  ENTER_IN_CONTEXT();
  *device = current_device;
  return kSuccess;
}

EXPORT int fake_cuda_current(unsigned char uuid[16]) {
  const int device = current_device < 0 ? 0 : current_device;
  GiveUuid(std::getenv("FAKE_CUDA_MIG") != nullptr ? 0 : device, uuid);  // NCCL goes by the place
  return device;
}
EXPORT void fake_cuda_set_device(int device) { current_device = device; }
