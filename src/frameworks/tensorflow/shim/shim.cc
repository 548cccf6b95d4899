// The library that tf.load_op_library loads: nothing but a reason for TensorFlow to look at its list of new operators.
// The core itself will not do, as Python has loaded it already, and TensorFlow sees only what a load registers.
#include "horovod/horovod.h"

namespace {

[[maybe_unused]] const char* const kProblem = hvd_register_tensorflow();

}  // namespace
