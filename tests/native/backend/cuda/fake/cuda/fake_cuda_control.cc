#include "native/backend/cuda/fake/cuda/fake_cuda_control.h"

#include <atomic>

#include "native/backend/cuda/fake/cuda/fake_cuda.h"

namespace fake {

thread_local int current_device = -1;
thread_local bool in_host_function = false;

namespace {

// Never destroyed: streams still work while the process ends.
Control& TheControl() {
  static auto* const kControl = new Control("FAKE_CUDA_FAIL");
  return *kControl;
}
struct Recorder {
  std::mutex mutex;  // guards all of this
  bool on = false;
  std::string lines;
};
Recorder& TheRecorder() {
  static auto* const kRecorder = new Recorder;
  return *kRecorder;
}
std::atomic<bool> initialized{false};

}  // namespace

int Enter(const char* function) {
  if (in_host_function) {
    Fault(std::string(function) + " called in a host function");
    return kNotPermitted;
  }
  if (const int code = TheControl().FailureOf(function)) return code;
  const bool begins = std::strcmp(function, "cuInit") == 0 || std::strcmp(function, "hipInit") == 0;
  return initialized || begins ? kSuccess : kNotInitialized;
}

void SetInitialized() { initialized = true; }

void Fault(const std::string& what) { TheControl().Fault(what); }

void Record(const std::string& line) {
  Recorder& recorder = TheRecorder();
  std::lock_guard<std::mutex> lock(recorder.mutex);
  if (recorder.on) recorder.lines += line + "\n";
}

}  // namespace fake

using namespace fake;  // NOLINT: the controls have to be global

EXPORT int fake_cuda_faults() { return TheControl().faults(); }
EXPORT int fake_cuda_say(char* text, int bytes) { return Give(TheControl().last_fault(), text, bytes); }
EXPORT void fake_cuda_fail_next(const char* function, int code) { TheControl().FailNext(function, code); }
EXPORT void fake_cuda_fault(const char* text) { Fault(text); }
EXPORT void fake_cuda_record_start() {
  std::lock_guard<std::mutex> lock(TheRecorder().mutex);
  TheRecorder().on = true;
  TheRecorder().lines.clear();
}
EXPORT int fake_cuda_record(char* text, int bytes) {
  std::lock_guard<std::mutex> lock(TheRecorder().mutex);
  return Give(TheRecorder().lines, text, bytes);
}
