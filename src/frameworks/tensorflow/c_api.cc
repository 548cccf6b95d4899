#include "frameworks/tensorflow/c_api.h"

#include <dlfcn.h>
#include <link.h>

#include "frameworks/tensorflow/standard_library.h"

namespace hvd::frameworks::tensorflow {
namespace {

// The names that a loaded library defines or wants, one after the other.
std::string_view DynamicStrings(void* library) {
  const link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map->l_ld == nullptr) return {};
  size_t at = 0, bytes = 0;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) at = entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRSZ) bytes = entry->d_un.d_val;
  }
  if (at == 0) return {};
  if (at < map->l_addr) at += map->l_addr;  // the loader has not written the address back on every architecture
  return {reinterpret_cast<const char*>(at), bytes};  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

Api tf;
TF_Status* no_memory = nullptr;

std::string Bind() {
  // Loaded already, or nobody here uses TensorFlow; the handle is kept, as TensorFlow is never unloaded.
  void* library = dlopen("libtensorflow_framework.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return "TensorFlow is not loaded in this process (libtensorflow_framework.so.2)";
#define HVD_TF_BIND(result, name, parameters)                           \
  tf.name = reinterpret_cast<decltype(tf.name)>(dlsym(library, #name)); \
  if (tf.name == nullptr) return "this TensorFlow has no " #name " (2.13 or newer is needed)";
  HVD_TF_FUNCTIONS(HVD_TF_BIND)
#undef HVD_TF_BIND
  no_memory = tf.TF_NewStatus();
  tf.TF_SetStatus(no_memory, kResourceExhausted, "Horovod: out of memory.");
  return ProblemWithStandardLibrary(DynamicStrings(library));
}

}  // namespace hvd::frameworks::tensorflow
