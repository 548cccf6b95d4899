#include "engine/record/profiler_range.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "base/log.h"

namespace hvd::engine {
namespace {

// ---- NVTX's interface to profilers
using Function = void (*)();
// A profiler stores its functions through these, each at the place that its number says.
using Table = Function**;
struct Callbacks {
  size_t bytes;
  int (*get_table)(int module, Table* table, unsigned* size);
};
struct VersionInfo {
  size_t bytes;
  uint32_t version, reserved;
  void (*set_profilers_version)(uint32_t version);
};
using GetExport = const void* (*)(uint32_t number);
using Initialize = int (*)(GetExport get);  // 0: it has failed
enum Export : uint32_t { kCallbacks = 1, kVersionInfo = 3 };
enum Module { kCore = 1, kModules = 7 };
enum Core { kRangePushA = 9, kRangePop = 11 };
// How many functions each module has, with the unused number 0.
constexpr unsigned kSizes[kModules] = {0, 16, 9, 15, 7, 16, 7};
constexpr unsigned kMost = 16;

// What a profiler has stored. Most of it is of functions that nobody calls here.
struct Slots {
  Function functions[kMost] = {};
  Function* places[kMost + 1] = {};
};
Slots modules[kModules];

int GetTable(int module, Table* table, unsigned* size) {
  if (module <= 0 || module >= kModules) return 0;
  Slots& of = modules[module];
  for (unsigned i = 1; i < kSizes[module]; ++i) of.places[i] = &of.functions[i];
  if (table != nullptr) *table = of.places;
  if (size != nullptr) *size = kSizes[module];
  return 1;
}

const void* GetExportTable(uint32_t number) {
  static const Callbacks kTables = {sizeof(Callbacks), GetTable};
  static const VersionInfo kVersion = {sizeof(VersionInfo), 3, 0, [](uint32_t) {}};
  if (number == kCallbacks) return &kTables;
  return number == kVersionInfo ? &kVersion : nullptr;
}

template <class F>
F* Stored(Core function) {
  return reinterpret_cast<F*>(modules[kCore].functions[function]);
}

// Empty, or why it shows no ranges.
std::string Open(const char* path) {
  void* const library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return why != nullptr ? why : "it cannot be opened";
  }
  const auto initialize = reinterpret_cast<Initialize>(dlsym(library, "InitializeInjectionNvtx2"));
  if (initialize == nullptr) return "it has no InitializeInjectionNvtx2";
  if (initialize(GetExportTable) == 0) return "its InitializeInjectionNvtx2 failed";
  if (Stored<void()>(kRangePushA) == nullptr || Stored<void()>(kRangePop) == nullptr) return "it does not ask for them";
  return "";
}

}  // namespace

std::atomic<bool> ProfilerRange::shown_{false};

void ShowRangesBy(const char* library) {
  static auto* const kOpened = new std::string;  // one for the life of the process
  if (library == nullptr || library[0] == '\0') {
    ProfilerRange::shown_ = false;
    return;
  }
  if (*kOpened != library) {
    const std::string why_not = Open(library);
    if (!why_not.empty()) {
      Log(LogLevel::kInfo, "no NVTX ranges by " + std::string(library) + ": " + why_not + ".");
      return;
    }
    *kOpened = library;
  }
  ProfilerRange::shown_ = true;
}

void ProfilerRange::Begin(const std::string& name) {
  if (name.empty()) return;
  (void)Stored<int(const char*)>(kRangePushA)(name.c_str());
  begun_ = true;
}

void ProfilerRange::End() { (void)Stored<int()>(kRangePop)(); }

}  // namespace hvd::engine
