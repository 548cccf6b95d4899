// HIP's runtime compiler, a library of its own beside HIP's, opened when it is needed.
#pragma once

#include <string>

#include "backend/cuda/driver/driver.h"

namespace hvd::backend::cuda {

// Compiles a text of C++ for this device. A code object for Functions::module_load_data. `hip` is a driver of that
// platform. kBackendUnavailable: there is no compiler, or it has failed.
Result<std::string> CompileByHiprtc(const Driver& hip, DeviceNumber device, const char* text);

}  // namespace hvd::backend::cuda
