// The core's operators for TensorFlow, registered when the shim is loaded (shim/shim.cc).
#include <cstring>
#include <string>

#include "border/border.h"
#include "frameworks/tensorflow/c_api.h"
#include "frameworks/tensorflow/kernels.h"
#include "frameworks/tensorflow/operators.h"
#include "frameworks/tensorflow/xla.h"
#include "horovod/horovod.h"

namespace hvd::frameworks::tensorflow {
namespace {

// The answer to the first call and to all later ones, so it is never freed; a second try would find half registered.
template <class Enrol>
const char* AnswerOf(Enrol enrol) {
  const char* answer = nullptr;
  border::Guarded([&] { answer = (new std::string(enrol()))->c_str(); },
                  [&](hvd_status, const char* why) {
                    const char* const copy = strdup(why);
                    answer = copy != nullptr ? copy : border::kNoMemory;
                  });
  return answer;
}

std::string RegisterAll() {
  std::string problem = Bind();
  if (problem.empty()) problem = RegisterOperators();
  if (problem.empty()) problem = RegisterKernels();
  return problem;
}

}  // namespace
}  // namespace hvd::frameworks::tensorflow

extern "C" const char* hvd_register_tensorflow(void) {
  using namespace hvd::frameworks::tensorflow;
  static const char* const kProblem = AnswerOf(RegisterAll);
  return kProblem;
}

extern "C" const char* hvd_register_tensorflow_xla(void) {
  using namespace hvd::frameworks::tensorflow;
  static const char* const kProblem = AnswerOf(RegisterXlaTarget);
  return kProblem;
}

extern "C" const char* hvd_register_tensorflow_gpu(hvd_tensorflow_stream_fn stream_of) {
  using namespace hvd::frameworks::tensorflow;
  static const char* const kProblem = AnswerOf([stream_of] { return RegisterGpuKernels(stream_of); });
  return kProblem;
}
