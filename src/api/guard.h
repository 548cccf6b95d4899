// The C interface's side of the border: Status to code, last error per thread.
#pragma once

#include "base/status.h"
#include "border/border.h"

namespace hvd::api {

// Remembers the text for hvd_last_error and returns the code.
hvd_status Report(hvd_status code, const char* text) noexcept;
const char* LastError();

// Runs fn() -> Status; out of memory becomes HVD_RESOURCE, any other throw HVD_INTERNAL.
template <class F>
hvd_status Guard(F fn) noexcept {
  hvd_status code = HVD_OK;
  border::Guarded(
      [&] {
        const Status status = fn();
        if (!status.ok()) code = Report(static_cast<hvd_status>(status.code()), status.message().c_str());
      },
      [&](hvd_status failure, const char* text) { code = Report(failure, text); });
  return code;
}

}  // namespace hvd::api
