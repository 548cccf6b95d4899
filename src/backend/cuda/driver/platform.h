// Platform: whose driver a library is, NVIDIA's or AMD's, and in what the two differ beyond the names of their
// functions, which stand in the table of driver.h. Everything else of this folder is written once for both.
#pragma once

#include <string>

namespace hvd::backend::cuda {

struct Platform {
  enum Kind { kCuda, kHip };

  Kind kind;
  const char* name;     // of its streams
  const char* driver;   // the subject of sentences about it
  const char* version;  // before a number: "one for CUDA ", "HIP "
  const char* origin;   // where the library comes from, a sentence
  const char* update;   // what to do where it is too old, a sentence
  const char* hides;    // what may hide devices from a process
  // The oldest version that will do, and what one more of a version's two numbers adds.
  int oldest, major_unit, minor_unit;
  // Of device attributes.
  int capability_major, capability_minor, memory_pools_supported;
  // A block that one stream frees is given on another only when the first one has come there. HIP gives it at once on
  // the stream on which it was allocated.
  bool pools_order_streams;

  // Which one an open library is, by its functions.
  static const Platform& Of(void* library);
  // Which one a library that cannot be opened would be, by its name.
  static const Platform& Named(const std::string& path);

  std::string VersionText(int number) const;
};

}  // namespace hvd::backend::cuda
