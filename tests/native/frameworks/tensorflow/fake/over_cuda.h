// The fake GPU of TensorFlow with the memory and the streams of the fake CUDA driver, which work late and find what no
// event orders: where HVD_TEST_CUDA_LIBRARY names that driver.
#pragma once

#include <cstddef>

#include "native/frameworks/tensorflow/fake/stream_executor.h"

namespace fake_tensorflow {

// Whether it is asked for.
bool OverCuda();
// Replaces all that has to do with memory and streams.
void PutOverCuda(Executor* executor);
// Negates floats on a stream, once it has come so far.
void NegateOverCuda(Stream* stream, const void* from, void* to, size_t bytes);

}  // namespace fake_tensorflow
