// The driver and NCCL as tests call them: bound at run time to the fakes, or to the real ones. With
// HVD_TEST_PLATFORM=hip they are HIP and RCCL.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "native/backend/cuda/fake/cuda/fake_cuda.h"
#include "native/backend/cuda/fake/nccl/fake_nccl.h"
#include "native/harness/harness.h"

namespace hvd::test {

// Functions of an open library; one that it has not fails the test that asks for it first.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) Fail(__FILE__, __LINE__, dlerror());
  }
  bool open() const { return handle_ != nullptr; }
  template <class F>
  void Bind(const char* name, F*& function) const {
    function = reinterpret_cast<F*>(dlsym(handle_, name));
    if (function == nullptr) Fail(__FILE__, __LINE__, std::string("no function ") + name);
  }

 private:
  void* handle_;  // stays open
};

inline bool OverHip() {
  const char* platform = std::getenv("HVD_TEST_PLATFORM");
  return platform != nullptr && std::string(platform) == "hip";
}
inline std::string PathOfFake(const char* cuda, const char* rocm) {
  return Folder() + (OverHip() ? "/fake_rocm/" : "/") + (OverHip() ? rocm : cuda);
}
inline std::string PathOfFakeDriver() { return PathOfFake("libfake_cuda.so", "libamdhip64.so.6"); }
inline std::string PathOfFakeNccl() { return PathOfFake("libfake_nccl.so", "librccl.so.1"); }
inline std::string PathOfCuda() {
  const char* path = std::getenv("HVD_TEST_CUDA_LIBRARY");
  return path == nullptr ? PathOfFakeDriver() : path;
}
inline std::string PathOfNccl() {
  const char* path = std::getenv("HVD_TEST_NCCL_LIBRARY");
  return path == nullptr ? PathOfFakeNccl() : path;
}
inline bool OverFakes() {
  return std::getenv("HVD_TEST_CUDA_LIBRARY") == nullptr && std::getenv("HVD_TEST_NCCL_LIBRARY") == nullptr;
}

// Ends a test that real libraries would not fail on purpose.
#define NEEDS_FAKES()       \
  do {                      \
    if (!OverFakes()) {     \
      Skip("needs a fake"); \
      return;               \
    }                       \
  } while (0)

#define BOUND(name) decltype(::name)* name = Bound<decltype(::name)>(#name)

// What the fakes have for tests (fake/fake_cuda.h, fake/fake_nccl.h).
class Fakes {
  template <class F>
  F* Bound(const char* name) const {
    F* function = nullptr;
    (std::string(name).rfind("fake_cuda", 0) == 0 ? cuda_ : nccl_).Bind(name, function);
    return function;
  }
  Library cuda_{PathOfFakeDriver()}, nccl_{PathOfFakeNccl()};

 public:
  BOUND(fake_cuda_faults);
  BOUND(fake_cuda_say);
  BOUND(fake_cuda_set_capturing);
  BOUND(fake_cuda_fail_next);
  BOUND(fake_cuda_stall);
  BOUND(fake_cuda_number);
  BOUND(fake_cuda_record_start);
  BOUND(fake_cuda_record);
  BOUND(fake_cuda_blocks);
  BOUND(fake_nccl_faults);
  BOUND(fake_nccl_say);
  BOUND(fake_nccl_fail_next);
  BOUND(fake_nccl_hang);
  BOUND(fake_nccl_async_error);
  BOUND(fake_nccl_leave_together);
  BOUND(fake_nccl_communicators);
  BOUND(fake_nccl_operations);
  BOUND(fake_nccl_scaled_sums);

  // The words for the last fault of either; empty: there was none since `Fakes` was made.
  std::string NewFault() const {
    char text[500] = "";
    if (fake_cuda_faults() != cuda_before_) fake_cuda_say(text, sizeof text);
    if (fake_nccl_faults() != nccl_before_) fake_nccl_say(text, sizeof text);
    return text;
  }
  std::string Record() const {
    std::string text(static_cast<size_t>(fake_cuda_record(nullptr, 0)) + 1, '\0');
    fake_cuda_record(text.data(), static_cast<int>(text.size()));
    text.pop_back();
    return text;
  }
  // Of the record: those that hold this text, in the order of the calls.
  std::vector<std::string> LinesWith(const std::string& text) const {
    std::vector<std::string> lines;
    std::istringstream record(Record());
    for (std::string line; std::getline(record, line);) {
      if (line.find(text) != std::string::npos) lines.push_back(line);
    }
    return lines;
  }

 private:
  int cuda_before_ = fake_cuda_faults(), nccl_before_ = fake_nccl_faults();
};

#undef BOUND

}  // namespace hvd::test
