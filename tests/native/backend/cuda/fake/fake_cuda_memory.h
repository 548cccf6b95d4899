// The memory of the fake devices: host memory, known by its address.
#pragma once

#include <cstddef>
#include <string>

namespace fake {

// Which memory an operation may find at an address.
enum class Side {
  kDevice,    // device memory, or pinned memory of the host
  kAnywhere,  // that, or any memory of the host
};

// Whether `device` may access these bytes now; empty: it may. kAnyDevice: whichever device owns them.
constexpr int kAnyDevice = -1;
std::string WhyNoAccess(const void* address, size_t bytes, Side side, int device);

}  // namespace fake
