// What every function of the fake NCCL does first, its faults and errors, and the fake driver that it works with.
#pragma once

#include <string>

#include "native/backend/cuda/fake/control.h"
#include "native/backend/cuda/fake/cuda/fake_cuda.h"

// Begins every function of NCCL that can fail.
#define ENTER()                                                \
  do {                                                         \
    if (const int code_ = fake::Enter(__func__)) return code_; \
  } while (0)

namespace fake {

enum Code {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kInProgress = 7,
};

int Enter(const char* function);
void Fault(const std::string& what);
// Keeps the words for ncclGetLastError; returns the code.
int Error(int code, const std::string& words);
std::string LastError();
bool Hanging();
int AsyncError();
bool LeaveTogether();

// The hooks of fake_cuda.h.
struct Driver {
  decltype(&fake_cuda_enqueue) enqueue;
  decltype(&fake_cuda_may_access) may_access;
  decltype(&fake_cuda_device_of) device_of;
  decltype(&fake_cuda_current) current;
  decltype(&fake_cuda_set_device) set_device;
};
// Null: there is no libfake_cuda.so beside this library.
const Driver* TheDriver();

}  // namespace fake
