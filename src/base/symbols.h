// Symbols: the functions of a library that is opened at run time. A table is a class of Imported functions, each with
// its type and the name under which the library exports it.
#pragma once

#include <string>

#include "base/status.h"

namespace hvd {

// For good. scope: RTLD_LOCAL or RTLD_GLOBAL. kBackendUnavailable: the loader's reason.
Result<void*> OpenLibrary(const std::string& path, int scope);

// What a table takes from a library, and the first name that the library turned out not to have.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  void* library() const { return library_; }
  const std::string& missing() const { return missing_; }  // empty: nothing
  void* Find(const char* name) const;                      // null: it is not there
  void* Require(const char* name);

 private:
  void* const library_;
  std::string missing_;
};

template <class F>
class Imported;
template <class R, class... Arguments>
class Imported<R(Arguments...)> {
 public:
  Imported(Symbols& symbols, const char* name) : Imported(name, symbols.Require(name)) {}
  Imported(const char* name, void* address) : name_(name), address_(reinterpret_cast<R (*)(Arguments...)>(address)) {}

  const char* name() const { return name_; }
  explicit operator bool() const { return address_ != nullptr; }
  R operator()(Arguments... arguments) const { return address_(arguments...); }

 private:
  const char* const name_;
  R (*const address_)(Arguments...);
};

}  // namespace hvd
