// The core's operators for TensorFlow, registered when the shim is loaded (shim/shim.cc).
#include <string>

#include "frameworks/tensorflow/c_api.h"
#include "frameworks/tensorflow/kernels.h"
#include "frameworks/tensorflow/operators.h"
#include "frameworks/tensorflow/xla.h"
#include "horovod/horovod.h"

// Both once per process; the texts are the answers to later calls too, and never freed.

extern "C" const char* hvd_register_tensorflow(void) {
  using namespace hvd::frameworks::tensorflow;
  static const auto* const kProblem = [] {
    std::string problem = Bind();
    if (problem.empty()) problem = RegisterOperators();
    if (problem.empty()) problem = RegisterKernels();
    return new std::string(problem);
  }();
  return kProblem->c_str();
}

extern "C" const char* hvd_register_tensorflow_xla(void) {
  static const auto* const kProblem = new std::string(hvd::frameworks::tensorflow::RegisterXlaTarget());
  return kProblem->c_str();
}
