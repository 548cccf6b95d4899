#include "backend/cuda/driver.h"

#include <dlfcn.h>

namespace hvd::backend::cuda {
namespace {

// Of the year 2020. What has come later is optional in the table.
constexpr int kOldest = 11'000;

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string TooOld(const std::string& path) {
  return "the CUDA driver is too old (" + path + "): this version needs one for CUDA " + VersionText(kOldest) +
         " or later; ";
}

}  // namespace

void* FindFunction(void* library, const char* name) { return dlsym(library, name); }

Result<std::shared_ptr<const Driver>> Driver::Open(const std::string& path) {
  void* const opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const why = dlerror();
    return Status(Code::kBackendUnavailable,
                  "the CUDA driver's library cannot be opened: " + std::string(why != nullptr ? why : path) +
                      ". It comes with the NVIDIA driver; in a container the container's runtime has to show it.");
  }
  const std::shared_ptr<Driver> driver(new Driver(path, opened));
  const std::string& missing = driver->functions_.binder.missing;
  if (!missing.empty())
    return Status(Code::kBackendUnavailable, TooOld(path) + "it has no " + missing + ". Update the NVIDIA driver.");
  Status begun = driver->Call(driver->functions_.init, 0);
  if (begun.ok()) begun = driver->Call(driver->functions_.driver_get_version, &driver->version_);
  if (!begun.ok()) return Status(Code::kBackendUnavailable, begun.message());
  HVD_TRY(CheckVersion(path, driver->version_));
  return std::shared_ptr<const Driver>(driver);
}

Status Driver::CheckVersion(const std::string& path, int version) {
  if (version >= kOldest) return Status();
  return Status(Code::kBackendUnavailable,
                TooOld(path) + "it is one for CUDA " + VersionText(version) + ". Update the NVIDIA driver.");
}

Status Driver::Failed(const char* function, int code) const {
  return Status(code == kOutOfMemory ? Code::kResource : Code::kInternal,
                std::string(function) + " of " + path_ + " failed: " + Words(code) + ".");
}

std::string Driver::Words(int code) const {
  const char *name = nullptr, *text = nullptr;
  if (functions_.get_error_name(code, &name) != 0 || name == nullptr) return "error " + std::to_string(code);
  if (functions_.get_error_string(code, &text) != 0 || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

}  // namespace hvd::backend::cuda
