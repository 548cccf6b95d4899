// Driver: the functions of the CUDA driver's library, opened at run time, with failures as Status in the driver's own
// words. There is no cuda.h here: what is declared below is the driver's published binary interface, which never
// changes under an exported name. It knows no context; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace hvd::backend::cuda {

// ---- the driver's types
using DeviceAddress = uint64_t;               // CUdeviceptr
using Handle = void*;                         // CUcontext, CUstream, CUevent, CUmodule, CUfunction
using DeviceNumber = int;                     // CUdevice
inline constexpr int kOutOfMemory = 2;        // CUresult
inline constexpr int kNotReady = 600;         // CUresult of a question whose answer is "not yet"
inline constexpr int kCaptureImplicit = 906;  // CUresult: another stream, with which this one is in step, is captured

// The library, and the first function that it turned out not to have.
struct Binder {
  void* library = nullptr;
  std::string missing;
};
struct Optional {};

template <class... Arguments>
class Function {
 public:
  Function(Binder& binder, const char* name) : Function(binder, name, Optional()) {
    if (address_ == nullptr && binder.missing.empty()) binder.missing = name;
  }
  Function(Binder& binder, const char* name, Optional) : name_(name) { Bind(binder.library); }
  const char* name() const { return name_; }
  explicit operator bool() const { return address_ != nullptr; }
  // The code that the driver returns, unchecked.
  int operator()(Arguments... arguments) const { return address_(arguments...); }

 private:
  void Bind(void* library);

  const char* const name_;
  int (*address_)(Arguments...) = nullptr;
};

// The table. Names are the exported ones: a suffix is the version of the function's parameters.
struct Functions {
  explicit Functions(void* library) : binder{library, ""} {}

  Binder binder;
  Function<unsigned> init{binder, "cuInit"};
  Function<int*> driver_get_version{binder, "cuDriverGetVersion"};
  Function<int, const char**> get_error_name{binder, "cuGetErrorName"};
  Function<int, const char**> get_error_string{binder, "cuGetErrorString"};
  // Devices and contexts.
  Function<int*> device_get_count{binder, "cuDeviceGetCount"};
  Function<DeviceNumber*, int> device_get{binder, "cuDeviceGet"};
  Function<char*, int, DeviceNumber> device_get_name{binder, "cuDeviceGetName"};
  Function<std::byte*, DeviceNumber> device_get_uuid{binder, "cuDeviceGetUuid"};
  Function<std::byte*, DeviceNumber> device_get_uuid_v2{binder, "cuDeviceGetUuid_v2", Optional()};  // 11.4
  Function<int*, int, DeviceNumber> device_get_attribute{binder, "cuDeviceGetAttribute"};
  Function<Handle*, DeviceNumber> primary_ctx_retain{binder, "cuDevicePrimaryCtxRetain"};
  Function<DeviceNumber> primary_ctx_release{binder, "cuDevicePrimaryCtxRelease_v2"};
  Function<Handle*> ctx_get_current{binder, "cuCtxGetCurrent"};
  Function<Handle> ctx_set_current{binder, "cuCtxSetCurrent"};
  Function<int*, int*> ctx_get_stream_priority_range{binder, "cuCtxGetStreamPriorityRange"};
  // Streams and events.
  Function<Handle*, unsigned, int> stream_create_with_priority{binder, "cuStreamCreateWithPriority"};
  Function<Handle> stream_destroy{binder, "cuStreamDestroy_v2"};
  Function<Handle> stream_synchronize{binder, "cuStreamSynchronize"};
  Function<Handle, Handle, unsigned> stream_wait_event{binder, "cuStreamWaitEvent"};
  Function<Handle, int*> stream_is_capturing{binder, "cuStreamIsCapturing"};
  Function<int*> thread_exchange_stream_capture_mode{binder, "cuThreadExchangeStreamCaptureMode", Optional()};
  Function<Handle*, unsigned> event_create{binder, "cuEventCreate"};
  Function<Handle> event_destroy{binder, "cuEventDestroy_v2"};
  Function<Handle, Handle> event_record{binder, "cuEventRecord"};
  Function<Handle> event_query{binder, "cuEventQuery"};
  Function<float*, Handle, Handle> event_elapsed_time{binder, "cuEventElapsedTime"};
  // Memory.
  Function<size_t*, size_t*> mem_get_info{binder, "cuMemGetInfo_v2"};
  Function<DeviceAddress*, size_t> mem_alloc{binder, "cuMemAlloc_v2"};
  Function<DeviceAddress> mem_free{binder, "cuMemFree_v2"};
  Function<DeviceAddress*, size_t, Handle> mem_alloc_async{binder, "cuMemAllocAsync", Optional()};  // 11.2
  Function<DeviceAddress, Handle> mem_free_async{binder, "cuMemFreeAsync", Optional()};
  Function<void**, size_t, unsigned> mem_host_alloc{binder, "cuMemHostAlloc"};
  Function<void*> mem_free_host{binder, "cuMemFreeHost"};
  Function<DeviceAddress, const void*, size_t, Handle> memcpy_htod_async{binder, "cuMemcpyHtoDAsync_v2"};
  Function<void*, DeviceAddress, size_t, Handle> memcpy_dtoh_async{binder, "cuMemcpyDtoHAsync_v2"};
  Function<DeviceAddress, DeviceAddress, size_t, Handle> memcpy_dtod_async{binder, "cuMemcpyDtoDAsync_v2"};
  Function<DeviceAddress, unsigned, size_t, Handle> memset_d32_async{binder, "cuMemsetD32Async"};
  // Kernels.
  Function<Handle*, const void*, unsigned, int*, void**> module_load_data{binder, "cuModuleLoadDataEx"};
  Function<Handle*, Handle, const char*> module_get_function{binder, "cuModuleGetFunction"};
  Function<Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**>
      launch_kernel{binder, "cuLaunchKernel"};
};

class Driver {
 public:
  // `path`: a path, or a name that the system's loader finds: "libcuda.so.1". Stays open for good.
  static Result<std::shared_ptr<const Driver>> Open(const std::string& path);
  // kBackendUnavailable: a driver of this version is too old.
  static Status CheckVersion(const std::string& path, int version);

  const std::string& path() const { return path_; }
  // As CUDA counts: 12040 is that of CUDA 12.4.
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

void* FindFunction(void* library, const char* name);

template <class... Arguments>
void Function<Arguments...>::Bind(void* library) {
  *reinterpret_cast<void**>(&address_) = FindFunction(library, name_);
}

}  // namespace hvd::backend::cuda
