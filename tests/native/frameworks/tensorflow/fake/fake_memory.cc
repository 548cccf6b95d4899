// malloc for programs of the tests, which load it before all else (LD_PRELOAD): when a test says so, it refuses what
// the core asks for next. The core's C++ library is its own, so operator new has to ask here. Everybody else gets
// memory.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstring>

extern "C" void* __libc_malloc(size_t bytes);  // NOLINT(bugprone-reserved-identifier): glibc's name

namespace {

std::atomic<bool> refusing{false};

bool OfTheCore(const void* caller) {
  Dl_info place = {};
  return dladdr(caller, &place) != 0 && std::strstr(place.dli_fname, "libhorovod.so") != nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void fake_memory_refuse_once() { refusing = true; }

extern "C" __attribute__((visibility("default"))) void* malloc(size_t bytes) {
  if (refusing.load(std::memory_order_relaxed) && OfTheCore(__builtin_return_address(0)) && refusing.exchange(false)) {
    return nullptr;
  }
  return __libc_malloc(bytes);
}
