#include "native/backend/cuda/fake/nccl/fake_nccl_control.h"

#include <dlfcn.h>

#include <atomic>

#include "native/backend/cuda/fake/nccl/fake_nccl.h"

namespace fake {
namespace {

// Never destroyed: streams still work while the process ends.
Control& TheControl() {
  static auto* const kControl = new Control("FAKE_NCCL_FAIL");
  return *kControl;
}
struct Words {
  std::mutex mutex;
  std::string last;
};
Words& TheWords() {
  static auto* const kWords = new Words;
  return *kWords;
}
std::atomic<bool> hanging{false}, together{false};
std::atomic<int> async_error{0};

const Driver* FindDriver() {
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(&FindDriver), &here) == 0) return nullptr;
  std::string path = here.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + FAKE_DRIVER;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto* driver = new Driver;
  const auto bind = [library](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
  };
  bind("fake_cuda_enqueue", driver->enqueue);
  bind("fake_cuda_may_access", driver->may_access);
  bind("fake_cuda_device_of", driver->device_of);
  bind("fake_cuda_current", driver->current);
  bind("fake_cuda_set_device", driver->set_device);
  return driver;
}

}  // namespace

int Enter(const char* function) {
  const int code = TheControl().FailureOf(function);
  return code == 0 ? 0 : Error(code, std::string(function) + " was told to fail");
}
void Fault(const std::string& what) { TheControl().Fault(what); }
int Error(int code, const std::string& words) {
  std::lock_guard<std::mutex> lock(TheWords().mutex);
  TheWords().last = words;
  return code;
}
std::string LastError() {
  std::lock_guard<std::mutex> lock(TheWords().mutex);
  return TheWords().last;
}
bool Hanging() { return hanging; }
int AsyncError() { return async_error; }
bool LeaveTogether() { return together; }
const Driver* TheDriver() {
  static const Driver* const kDriver = FindDriver();
  return kDriver;
}

}  // namespace fake

using namespace fake;  // NOLINT: the controls have to be global

EXPORT int fake_nccl_faults() { return TheControl().faults(); }
EXPORT int fake_nccl_say(char* text, int bytes) { return Give(TheControl().last_fault(), text, bytes); }
EXPORT void fake_nccl_fail_next(const char* function, int code) { TheControl().FailNext(function, code); }
EXPORT void fake_nccl_hang(int on) { hanging = on != 0; }
EXPORT void fake_nccl_async_error(int code) { async_error = code; }
EXPORT void fake_nccl_leave_together(int on) { together = on != 0; }
