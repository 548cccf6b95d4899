#include "backend/cuda/driver/driver.h"

#include <dlfcn.h>

namespace hvd::backend::cuda {
namespace {

std::string TooOld(const Platform& platform, const std::string& path) {
  return std::string(platform.driver) + " is too old (" + path + "): this version needs " + platform.version +
         platform.VersionText(platform.oldest) + " or later; ";
}

}  // namespace

Binder::Binder(void* opened)
    : Symbols(opened),
      platform(Platform::Of(opened)),
      last_failure{reinterpret_cast<int (*)()>(Find("hipPeekAtLastError")),
                   reinterpret_cast<int (*)()>(Find("hipGetLastError"))} {}

Result<std::shared_ptr<const Driver>> Driver::Open(const std::string& path) {
  const Result<void*> opened = OpenLibrary(path, RTLD_LOCAL);
  if (!opened.ok()) {
    const Platform& platform = Platform::Named(path);
    return Status(Code::kBackendUnavailable, std::string(platform.driver) + "'s library cannot be opened: " +
                                                 opened.status().message() + ". " + platform.origin);
  }
  const std::shared_ptr<Driver> driver(new Driver(path, *opened));
  const Platform& platform = driver->platform();
  const std::string& missing = driver->functions_.binder.missing();
  if (!missing.empty()) {
    return Status(Code::kBackendUnavailable, TooOld(platform, path) + "it has no " + missing + ". " + platform.update);
  }
  Status begun = driver->Call(driver->functions_.init, 0);
  if (begun.ok()) begun = driver->Call(driver->functions_.driver_get_version, &driver->version_);
  if (!begun.ok()) return Status(Code::kBackendUnavailable, begun.message());
  HVD_TRY(CheckVersion(platform, path, driver->version_));
  return std::shared_ptr<const Driver>(driver);
}

Status Driver::CheckVersion(const Platform& platform, const std::string& path, int version) {
  if (version >= platform.oldest) return Status();
  return Status(Code::kBackendUnavailable, TooOld(platform, path) + "it is " + platform.version +
                                               platform.VersionText(version) + ". " + platform.update);
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
