// Collectives inside functions that TensorFlow compiles with XLA: custom-call targets of the core's, for the CPU and
// for CUDA, which wait for the engine on XLA's thread. XLA has no interface for that which is both stable and callable
// without its headers, so this binds three functions of libtensorflow_cc by their mangled names, and checks before use
// that they are what they seem.
#pragma once

#include <string>

namespace hvd::frameworks::tensorflow {

// Registers the targets "hvd_collective"; an error text, or empty.
std::string RegisterXlaTarget();

}  // namespace hvd::frameworks::tensorflow
