// Driver: the functions of a GPU driver's library, CUDA's or HIP's, opened at run time, with failures as Status in the
// driver's own words. There is no header of either here: what is declared below is their published binary interface,
// which never changes under a name that CUDA's exports, nor under HIP's within the versions that are accepted. It knows
// no context; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "backend/cuda/driver/platform.h"
#include "base/symbols.h"

namespace hvd::backend::cuda {

// ---- the drivers' types and numbers, in which they agree
using DeviceAddress = uint64_t;               // CUdeviceptr, hipDeviceptr_t
using Handle = void*;                         // CUcontext; streams, events, modules, functions of both
using DeviceNumber = int;                     // CUdevice, hipDevice_t
inline constexpr int kOutOfMemory = 2;        // CUresult, hipError_t
inline constexpr int kNotReady = 600;         // of a question whose answer is "not yet"
inline constexpr int kCaptureImplicit = 906;  // another stream, with which this one is in step, is captured

// HIP keeps a thread's last failure, of any caller, until it is read. Null: the driver keeps none.
struct LastFailure {
  int (*peek)() = nullptr;
  int (*take)() = nullptr;
  // Ours is not left for a framework, which would take it for its own; one of the framework's is.
  void Forget(int ours) const {
    if (take != nullptr && peek != nullptr && peek() == ours) (void)take();
  }
};

// The library as the driver that it is.
struct Binder : Symbols {
  explicit Binder(void* opened);
  Binder(const Binder&) = delete;
  Binder& operator=(const Binder&) = delete;
  const char* Name(const char* cuda, const char* hip) const { return platform.kind == Platform::kHip ? hip : cuda; }

  const Platform& platform;
  const LastFailure last_failure;
};
struct Optional {};

// Has a name in both libraries, or is in one of them only (nullptr).
template <class... Arguments>
class Function {
 public:
  Function(Binder& binder, const char* cuda, const char* hip) : Function(binder, binder.Name(cuda, hip), true) {}
  Function(Binder& binder, const char* cuda, const char* hip, Optional)
      : Function(binder, binder.Name(cuda, hip), false) {}
  const char* name() const { return imported_.name(); }
  explicit operator bool() const { return static_cast<bool>(imported_); }
  // The code that the driver returns, unchecked.
  int operator()(Arguments... arguments) const {
    const int code = imported_(arguments...);
    if (code != 0) last_failure_.Forget(code);
    return code;
  }

 private:
  Function(Binder& binder, const char* name, bool required)
      : imported_(name, name == nullptr ? nullptr
                        : required      ? binder.Require(name)
                                        : binder.Find(name)),
        last_failure_(binder.last_failure) {}

  const Imported<int(Arguments...)> imported_;
  const LastFailure last_failure_;
};

// The table. Names are the exported ones: a suffix is the version of the function's parameters.
struct Functions {
  explicit Functions(void* library) : binder(library) {}

  Binder binder;
  Function<unsigned> init{binder, "cuInit", "hipInit"};
  Function<int*> driver_get_version{binder, "cuDriverGetVersion", "hipDriverGetVersion"};
  Function<int, const char**> get_error_name{binder, "cuGetErrorName", "hipDrvGetErrorName"};
  Function<int, const char**> get_error_string{binder, "cuGetErrorString", "hipDrvGetErrorString"};
  // Devices and contexts. HIP has one context for each device, which a thread enters by the device's number.
  Function<int*> device_get_count{binder, "cuDeviceGetCount", "hipGetDeviceCount"};
  Function<DeviceNumber*, int> device_get{binder, "cuDeviceGet", "hipDeviceGet"};
  Function<char*, int, DeviceNumber> device_get_name{binder, "cuDeviceGetName", "hipDeviceGetName"};
  Function<std::byte*, DeviceNumber> device_get_uuid{binder, "cuDeviceGetUuid", "hipDeviceGetUuid"};
  Function<std::byte*, DeviceNumber> device_get_uuid_v2{binder, "cuDeviceGetUuid_v2", nullptr, Optional()};  // 11.4
  Function<int*, int, DeviceNumber> device_get_attribute{binder, "cuDeviceGetAttribute", "hipDeviceGetAttribute"};
  Function<char*, int, DeviceNumber> device_get_pci_bus_id{binder, "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId"};
  Function<std::byte*, DeviceNumber> get_device_properties{binder, nullptr, "hipGetDevicePropertiesR0600"};
  Function<Handle*, DeviceNumber> primary_ctx_retain{binder, "cuDevicePrimaryCtxRetain", nullptr};
  Function<DeviceNumber> primary_ctx_release{binder, "cuDevicePrimaryCtxRelease_v2", nullptr};
  Function<Handle*> ctx_get_current{binder, "cuCtxGetCurrent", nullptr};
  Function<Handle> ctx_set_current{binder, "cuCtxSetCurrent", nullptr};
  Function<int*> get_device{binder, nullptr, "hipGetDevice"};
  Function<int> set_device{binder, nullptr, "hipSetDevice"};
  Function<int*, int*> ctx_get_stream_priority_range{binder, "cuCtxGetStreamPriorityRange",
                                                     "hipDeviceGetStreamPriorityRange"};
  // Streams and events.
  Function<Handle*, unsigned, int> stream_create_with_priority{binder, "cuStreamCreateWithPriority",
                                                               "hipStreamCreateWithPriority"};
  Function<Handle> stream_destroy{binder, "cuStreamDestroy_v2", "hipStreamDestroy"};
  Function<Handle> stream_synchronize{binder, "cuStreamSynchronize", "hipStreamSynchronize"};
  Function<Handle, Handle, unsigned> stream_wait_event{binder, "cuStreamWaitEvent", "hipStreamWaitEvent"};
  Function<Handle, int*> stream_is_capturing{binder, "cuStreamIsCapturing", "hipStreamIsCapturing"};
  Function<int*> thread_exchange_stream_capture_mode{binder, "cuThreadExchangeStreamCaptureMode",
                                                     "hipThreadExchangeStreamCaptureMode", Optional()};
  Function<Handle*, unsigned> event_create{binder, "cuEventCreate", "hipEventCreateWithFlags"};
  Function<Handle> event_destroy{binder, "cuEventDestroy_v2", "hipEventDestroy"};
  Function<Handle, Handle> event_record{binder, "cuEventRecord", "hipEventRecord"};
  Function<Handle> event_query{binder, "cuEventQuery", "hipEventQuery"};
  Function<float*, Handle, Handle> event_elapsed_time{binder, "cuEventElapsedTime", "hipEventElapsedTime"};
  // Memory.
  Function<size_t*, size_t*> mem_get_info{binder, "cuMemGetInfo_v2", "hipMemGetInfo"};
  Function<DeviceAddress*, size_t> mem_alloc{binder, "cuMemAlloc_v2", "hipMalloc"};
  Function<DeviceAddress> mem_free{binder, "cuMemFree_v2", "hipFree"};
  Function<DeviceAddress*, size_t, Handle> mem_alloc_async{binder, "cuMemAllocAsync", "hipMallocAsync",
                                                           Optional()};  // 11.2
  Function<DeviceAddress, Handle> mem_free_async{binder, "cuMemFreeAsync", "hipFreeAsync", Optional()};
  Function<void**, size_t, unsigned> mem_host_alloc{binder, "cuMemHostAlloc", "hipHostMalloc"};
  Function<void*> mem_free_host{binder, "cuMemFreeHost", "hipHostFree"};
  Function<DeviceAddress, const void*, size_t, Handle> memcpy_htod_async{binder, "cuMemcpyHtoDAsync_v2",
                                                                         "hipMemcpyHtoDAsync"};
  Function<void*, DeviceAddress, size_t, Handle> memcpy_dtoh_async{binder, "cuMemcpyDtoHAsync_v2",
                                                                   "hipMemcpyDtoHAsync"};
  Function<DeviceAddress, DeviceAddress, size_t, Handle> memcpy_dtod_async{binder, "cuMemcpyDtoDAsync_v2",
                                                                           "hipMemcpyDtoDAsync"};
  Function<DeviceAddress, unsigned, size_t, Handle> memset_d32_async{binder, "cuMemsetD32Async", "hipMemsetD32Async"};
  // Kernels.
  Function<Handle*, const void*, unsigned, int*, void**> module_load_data{binder, "cuModuleLoadDataEx",
                                                                          "hipModuleLoadDataEx"};
  Function<Handle*, Handle, const char*> module_get_function{binder, "cuModuleGetFunction", "hipModuleGetFunction"};
  Function<Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**>
      launch_kernel{binder, "cuLaunchKernel", "hipModuleLaunchKernel"};
};

class Driver {
 public:
  // `path`: a path, or a name that the system's loader finds: "libcuda.so.1". Whose driver it is, its functions tell.
  // Stays open for good.
  static Result<std::shared_ptr<const Driver>> Open(const std::string& path);
  // kBackendUnavailable: a driver of this version is too old.
  static Status CheckVersion(const Platform& platform, const std::string& path, int version);

  const std::string& path() const { return path_; }
  const Platform& platform() const { return functions_.binder.platform; }
  // As the platform counts: 12040 is that of CUDA 12.4.
  int version() const { return version_; }
  const Functions* operator->() const { return &functions_; }

  // Calls a function; kResource where there was no memory, else kInternal.
  template <class... Arguments>
  Status Call(const Function<Arguments...>& function, std::type_identity_t<Arguments>... arguments) const {
    const int code = function(arguments...);
    return code == 0 ? Status() : Failed(function.name(), code);
  }
  Status Failed(const char* function, int code) const;

 private:
  Driver(std::string path, void* library) : path_(std::move(path)), functions_(library) {}
  std::string Words(int code) const;

  const std::string path_;
  const Functions functions_;
  int version_ = 0;
};

inline DeviceAddress AddressOf(const void* on_device) { return reinterpret_cast<uintptr_t>(on_device); }
inline std::byte* PointerTo(DeviceAddress address) { return reinterpret_cast<std::byte*>(address); }

}  // namespace hvd::backend::cuda
