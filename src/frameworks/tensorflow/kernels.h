// The kernels of the operators, for the CPU; and for the GPU with inputs and outputs in host memory, so that TensorFlow
// stages the copies.
#pragma once

#include <string>

#include "horovod/horovod.h"

namespace hvd::frameworks::tensorflow {

// Registers all of them; an error text, or empty.
std::string RegisterKernels();

// Registers kernels that take tensors where they lie on a GPU, allreduce and broadcast of single types, which precede
// those above; an error text, or empty. `stream_of`: see hvd_register_tensorflow_gpu.
std::string RegisterGpuKernels(hvd_tensorflow_stream_fn stream_of);

}  // namespace hvd::frameworks::tensorflow
