// TensorFlow's C interface for devices that are plugged in (tensorflow/c/experimental/stream_executor), as far as a
// fake one needs it: the layout of its structures, each of which begins with its size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_tensorflow {

struct Status;
struct Stream;
struct Event;
struct Timer;

enum EventStatus : int { kEventError = 1, kEventPending = 2, kEventComplete = 3 };

struct TimerFunctions {
  size_t struct_size;
  void* ext;
  uint64_t (*nanoseconds)(Timer*);
};

struct Memory {
  size_t struct_size;
  void* ext;
  void* opaque;  // the address
  uint64_t size;
  uint64_t payload;
};

struct Device {
  size_t struct_size;
  void* ext;
  int32_t ordinal;
  void* device_handle;
  const char* hardware_name;
  const char* device_vendor;
  const char* pci_bus_id;
};

struct DeviceParams {
  size_t struct_size;
  void* ext;
  int32_t ordinal;
  Device* device;
};

struct DeviceFunctions {
  size_t struct_size;
  void* ext;
  int32_t (*get_numa_node)(const Device*);
  int64_t (*get_memory_bandwidth)(const Device*);
  double (*get_gflops)(const Device*);
};

struct DeviceFunctionsParams {
  size_t struct_size;
  void* ext;
  DeviceFunctions* functions;
};

struct Executor {
  size_t struct_size;
  void* ext;
  void (*allocate)(const Device*, uint64_t size, int64_t memory_space, Memory*);
  void (*deallocate)(const Device*, Memory*);
  void* (*host_memory_allocate)(const Device*, uint64_t size);
  void (*host_memory_deallocate)(const Device*, void*);
  void* (*unified_memory_allocate)(const Device*, uint64_t bytes);
  void (*unified_memory_deallocate)(const Device*, void*);
  unsigned char (*get_allocator_stats)(const Device*, void* stats);
  unsigned char (*device_memory_usage)(const Device*, int64_t* free, int64_t* total);
  void (*create_stream)(const Device*, Stream**, Status*);
  void (*destroy_stream)(const Device*, Stream*);
  void (*create_stream_dependency)(const Device*, Stream* dependent, Stream* other, Status*);
  void (*get_stream_status)(const Device*, Stream*, Status*);
  void (*create_event)(const Device*, Event**, Status*);
  void (*destroy_event)(const Device*, Event*);
  EventStatus (*get_event_status)(const Device*, Event*);
  void (*record_event)(const Device*, Stream*, Event*, Status*);
  void (*wait_for_event)(const Device*, Stream*, Event*, Status*);
  void (*create_timer)(const Device*, Timer**, Status*);
  void (*destroy_timer)(const Device*, Timer*);
  void (*start_timer)(const Device*, Stream*, Timer*, Status*);
  void (*stop_timer)(const Device*, Stream*, Timer*, Status*);
  void (*memcpy_dtoh)(const Device*, Stream*, void* to, const Memory* from, uint64_t size, Status*);
  void (*memcpy_htod)(const Device*, Stream*, Memory* to, const void* from, uint64_t size, Status*);
  void (*memcpy_dtod)(const Device*, Stream*, Memory* to, const Memory* from, uint64_t size, Status*);
  void (*sync_memcpy_dtoh)(const Device*, void* to, const Memory* from, uint64_t size, Status*);
  void (*sync_memcpy_htod)(const Device*, Memory* to, const void* from, uint64_t size, Status*);
  void (*sync_memcpy_dtod)(const Device*, Memory* to, const Memory* from, uint64_t size, Status*);
  void (*block_host_for_event)(const Device*, Event*, Status*);
  void (*block_host_until_done)(const Device*, Stream*, Status*);
  void (*synchronize_all_activity)(const Device*, Status*);
  void (*mem_zero)(const Device*, Stream*, Memory*, uint64_t size, Status*);
  void (*memset)(const Device*, Stream*, Memory*, uint8_t pattern, uint64_t size, Status*);
  void (*memset32)(const Device*, Stream*, Memory*, uint32_t pattern, uint64_t size, Status*);
  unsigned char (*host_callback)(const Device*, Stream*, void (*callback)(void*, Status*), void* argument);
};

struct ExecutorParams {
  size_t struct_size;
  void* ext;
  Executor* executor;
};

struct Platform {
  size_t struct_size;
  void* ext;
  const char* name;
  const char* type;
  unsigned char supports_unified_memory;
  unsigned char use_bfc_allocator;
  unsigned char force_memory_growth;
};

struct PlatformFunctions {
  size_t struct_size;
  void* ext;
  void (*get_device_count)(const Platform*, int* count, Status*);
  void (*create_device)(const Platform*, DeviceParams*, Status*);
  void (*destroy_device)(const Platform*, Device*);
  void (*create_device_fns)(const Platform*, DeviceFunctionsParams*, Status*);
  void (*destroy_device_fns)(const Platform*, DeviceFunctions*);
  void (*create_stream_executor)(const Platform*, ExecutorParams*, Status*);
  void (*destroy_stream_executor)(const Platform*, Executor*);
  void (*create_timer_fns)(const Platform*, TimerFunctions*, Status*);
  void (*destroy_timer_fns)(const Platform*, TimerFunctions*);
};

struct RegistrationParams {
  size_t struct_size;
  void* ext;
  int32_t major_version;
  int32_t minor_version;
  int32_t patch_version;
  Platform* platform;
  PlatformFunctions* functions;
  void (*destroy_platform)(Platform*);
  void (*destroy_platform_fns)(PlatformFunctions*);
};

// Up to the end of the last member that this header knows, as TensorFlow counts: without padding behind it.
template <class Struct, class Member>
constexpr size_t SizeUpTo(Member Struct::* last) {
  alignas(Struct) char place[sizeof(Struct)] = {};
  const auto* at = reinterpret_cast<const Struct*>(place);
  return static_cast<size_t>(reinterpret_cast<const char*>(&(at->*last)) - place) + sizeof(Member);
}

}  // namespace fake_tensorflow
