// What every function of the fake driver does first, the faults, and the record of what was put on streams.
#pragma once

#include <string>

#include "native/backend/cuda/fake/control.h"

// Begins every function of the driver.
#define ENTER()                                                \
  do {                                                         \
    if (const int code_ = fake::Enter(__func__)) return code_; \
  } while (0)
#define ENTER_IN_CONTEXT()                                 \
  do {                                                     \
    ENTER();                                               \
    if (fake::current_device < 0) return fake::kNoContext; \
  } while (0)

namespace fake {

enum Code {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kNoContext = 201,
  kInvalidPtx = 218,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kNotPermitted = 800,
  kCaptureUnsupported = 900,
  kCaptureIsolation = 905,
};

// Of this thread; -1: no context is current.
extern thread_local int current_device;
// This thread runs a host function, in which the driver must not be called.
extern thread_local bool in_host_function;

// The code with which a function is to fail at once; 0: none.
int Enter(const char* function);
void SetInitialized();
void Fault(const std::string& what);
void Record(const std::string& line);

}  // namespace fake
