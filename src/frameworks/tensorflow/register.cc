// The core's operators for TensorFlow, registered when the shim is loaded (shim/tensorflow.cc).
#include <string>

#include "frameworks/tensorflow/c_api.h"
#include "frameworks/tensorflow/kernels.h"
#include "frameworks/tensorflow/operators.h"
#include "horovod/horovod.h"

extern "C" const char* hvd_register_tensorflow(void) {
  using namespace hvd::tensorflow;
  // Once per process, also if TensorFlow loads the shim twice; never freed: the text is the answer to later calls.
  static const auto* const kProblem = [] {
    std::string problem = Bind();
    if (problem.empty()) problem = RegisterOperators();
    if (problem.empty()) problem = RegisterKernels();
    return new std::string(problem);
  }();
  return kProblem->c_str();
}
