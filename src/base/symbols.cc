#include "base/symbols.h"

#include <dlfcn.h>

namespace hvd {

Result<void*> OpenLibrary(const std::string& path, int scope) {
  void* const opened = dlopen(path.c_str(), RTLD_NOW | scope);
  if (opened != nullptr) return opened;
  const char* const why = dlerror();
  return Status(Code::kBackendUnavailable, why != nullptr ? why : "no reason given");
}

void* Symbols::Find(const char* name) const { return dlsym(library_, name); }

void* Symbols::Require(const char* name) {
  void* const found = Find(name);
  if (found == nullptr && missing_.empty()) missing_ = name;
  return found;
}

}  // namespace hvd
