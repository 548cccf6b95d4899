// The border between this library and others: foreign code that calls in (a framework's kernels, XLA, Python, the C
// library) is perhaps of another C++ runtime, and an exception of one runtime means nothing to another. So whatever is
// thrown inside ends here and becomes what the caller understands: a code of horovod.h and a text.
#pragma once

#include <cstdio>
#include <exception>
#include <new>

#include "horovod/horovod.h"

namespace hvd::border {

// Short enough for a std::string to hold in itself, whichever library it is of.
inline constexpr const char* kNoMemory = "out of memory.";

// Runs body(). If that throws, then failed(code, text): HVD_RESOURCE without memory, HVD_INTERNAL for anything else,
// which is a bug of ours, or an exception of another runtime. `failed` is called with no memory to rely on: what it
// throws ends the program.
template <class Body, class Failed>
void Guarded(Body body, Failed failed) noexcept {
  try {
    body();
  } catch (const std::bad_alloc&) {
    failed(HVD_RESOURCE, kNoMemory);
  } catch (const std::exception& error) {
    char text[200];
    (void)std::snprintf(text, sizeof text, "unexpected: %s", error.what());
    failed(HVD_INTERNAL, static_cast<const char*>(text));
  } catch (...) {
    failed(HVD_INTERNAL, "unexpected: an exception of another C++ library.");
  }
}

// Where a failure cannot be reported. False: it threw.
template <class Body>
bool Succeeds(Body body) noexcept {
  bool whole = true;
  Guarded(body, [&](hvd_status, const char*) { whole = false; });
  return whole;
}

}  // namespace hvd::border
