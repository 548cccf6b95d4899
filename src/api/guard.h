// The border of the library: Status to code, last error per thread, no exception past it.
#pragma once

#include <exception>
#include <new>

#include "base/status.h"

namespace hvd::api {

// Remembers the message for hvd_last_error and returns the code.
hvd_status Report(const Status& status);
const char* LastError();

// Runs fn() -> Status; out of memory becomes HVD_RESOURCE, any other throw, a bug of ours, HVD_INTERNAL.
template <class F>
hvd_status Guard(F fn) noexcept {
  try {
    return Report(fn());
  } catch (const std::bad_alloc&) {
    return Report(OutOfMemory());
  } catch (const std::exception& e) {
    return Report(Status(Code::kInternal, std::string("unexpected: ") + e.what()));
  }
}

}  // namespace hvd::api
