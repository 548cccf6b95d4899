// The kernels of the operators, for the CPU; and for the GPU with inputs and outputs in host memory, so that TensorFlow
// stages the copies.
#pragma once

#include <string>

namespace hvd::frameworks::tensorflow {

// Registers all of them; an error text, or empty.
std::string RegisterKernels();

}  // namespace hvd::frameworks::tensorflow
