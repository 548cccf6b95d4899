#include "frameworks/tensorflow/c_api.h"

#include <dlfcn.h>

namespace hvd::frameworks::tensorflow {

Api tf;

std::string Bind() {
  // Loaded already, or nobody here uses TensorFlow; the handle is kept, as TensorFlow is never unloaded.
  void* library = dlopen("libtensorflow_framework.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return "TensorFlow is not loaded in this process (libtensorflow_framework.so.2)";
#define HVD_TF_BIND(result, name, parameters)                           \
  tf.name = reinterpret_cast<decltype(tf.name)>(dlsym(library, #name)); \
  if (tf.name == nullptr) return "this TensorFlow has no " #name " (2.13 or newer is needed)";
  HVD_TF_FUNCTIONS(HVD_TF_BIND)
#undef HVD_TF_BIND
  return "";
}

}  // namespace hvd::frameworks::tensorflow
