// The memory of the fake devices: host memory, known by its address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fake {

// As HIP's pools do: a block of cuMemFreeAsync is given again at once, for as many bytes, on the stream on which it was
// allocated, whoever still uses it.
extern std::atomic<bool> gives_again_at_once;

// Which memory an operation may find at an address.
enum class Side {
  kDevice,    // device memory, or pinned memory of the host
  kAnywhere,  // that, or any memory of the host
};

// Whether `device` may access these bytes now; empty: it may. kAnyDevice: whichever device owns them.
constexpr int kAnyDevice = -1;
std::string WhyNoAccess(const void* address, size_t bytes, Side side, int device);

struct Access {
  const void* address = nullptr;
  size_t bytes = 0;
  bool writes = false;
};
// For each stream, by its index: how much of what was put on it is known to be done.
using Clock = std::vector<uint64_t>;
// Notes what the operation that is put on a stream now will access; `clock`: what is done before it begins, and itself.
// Empty, or the words for an access that nothing orders.
std::string NoteAccesses(const std::vector<Access>& accesses, size_t stream, const Clock& clock);

}  // namespace fake
