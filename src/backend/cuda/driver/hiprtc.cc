#include "backend/cuda/driver/hiprtc.h"

#include <dlfcn.h>

#include <array>
#include <cstring>

#include "base/text.h"

namespace hvd::backend::cuda {
namespace {

constexpr const char* kNames[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"};
constexpr size_t kHipLogShown = 500;
// hipDeviceProp_tR0600 has 1472 bytes, gcnArchName is an array of 256 characters in it; there is room for more.
constexpr size_t kPropertiesBytes = 4096, kArchitectureAt = 1160, kArchitectureBytes = 256;

struct Compiler {
  explicit Compiler(void* library) : symbols(library) {}

  Symbols symbols;
  Imported<int(Handle*, const char*, const char*, int, const char* const*, const char* const*)> create{
      symbols, "hiprtcCreateProgram"};
  Imported<int(Handle, int, const char* const*)> compile{symbols, "hiprtcCompileProgram"};
  Imported<int(Handle, size_t*)> get_log_size{symbols, "hiprtcGetProgramLogSize"};
  Imported<int(Handle, char*)> get_log{symbols, "hiprtcGetProgramLog"};
  Imported<int(Handle, size_t*)> get_code_size{symbols, "hiprtcGetCodeSize"};
  Imported<int(Handle, char*)> get_code{symbols, "hiprtcGetCode"};
  Imported<int(Handle*)> destroy{symbols, "hiprtcDestroyProgram"};
  Imported<const char*(int)> get_error_string{symbols, "hiprtcGetErrorString"};
};

// The folder of the file in which HIP's functions lie, with its slash; empty: it is not known.
std::string FolderOf(const Driver& hip) {
  Dl_info info = {};
  if (dladdr(hip->binder.Find(hip->init.name()), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

// Beside HIP's own library, because it has to be of its version; else where the loader looks. HIP's older libraries
// have the functions themselves.
void* Library(const Driver& hip) {
  for (const std::string& folder : {FolderOf(hip), std::string()}) {
    for (const char* const name : kNames) {
      if (void* const opened = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL); opened != nullptr) return opened;
    }
  }
  return hip->binder.library();
}

// Asks for a size, then for as many bytes.
std::string Taken(const Imported<int(Handle, size_t*)>& get_size, const Imported<int(Handle, char*)>& get,
                  Handle program) {
  size_t bytes = 0;
  if (get_size(program, &bytes) != 0 || bytes == 0) return "";
  std::string taken(bytes, '\0');
  if (get(program, taken.data()) != 0) return "";
  return taken;
}

// "gfx942:sramecc+:xnack-".
Result<std::string> ArchitectureOf(const Driver& hip, DeviceNumber device) {
  std::array<std::byte, kPropertiesBytes> properties = {};
  HVD_TRY(hip.Call(hip->get_device_properties, properties.data(), device));
  const char* const name = reinterpret_cast<const char*>(&properties[kArchitectureAt]);
  return std::string(name, strnlen(name, kArchitectureBytes));
}

Result<std::string> Compiled(const Compiler& compiler, Handle program, const std::string& architecture) {
  // Without this option the compiler would ask the current device, by a HIP that it looks for under its bare name.
  const std::string option = "--offload-arch=" + architecture;
  const char* const options[] = {option.c_str()};
  if (const int code = compiler.compile(program, 1, options); code != 0) {
    std::string log = Taken(compiler.get_log_size, compiler.get_log, program);
    log = log.substr(0, log.find('\0'));
    const char* const words = compiler.get_error_string(code);
    return Status(Code::kBackendUnavailable, std::string("hiprtcCompileProgram failed: ") +
                                                 (words != nullptr ? words : "no reason given") +
                                                 (log.empty() ? "" : ", " + Shortened(log, kHipLogShown)));
  }
  std::string code = Taken(compiler.get_code_size, compiler.get_code, program);
  if (code.empty()) return Status(Code::kBackendUnavailable, "hiprtcGetCode gave nothing");
  return code;
}

}  // namespace

Result<std::string> CompileByHiprtc(const Driver& hip, DeviceNumber device, const char* text) {
  const Compiler compiler(Library(hip));
  if (!compiler.symbols.missing().empty()) {
    return Status(
        Code::kBackendUnavailable,
        "HIP's runtime compiler, libhiprtc.so, is missing beside HIP's library (ROCm has it; in distributions "
        "it is a package such as libhiprtc7)");
  }
  const Result<std::string> architecture = ArchitectureOf(hip, device);
  HVD_TRY(architecture.status());
  Handle program = nullptr;
  if (compiler.create(&program, text, "packing.hip", 0, nullptr, nullptr) != 0)
    return Status(Code::kBackendUnavailable, "hiprtcCreateProgram failed");
  Result<std::string> compiled = Compiled(compiler, program, *architecture);
  (void)compiler.destroy(&program);
  return compiled;
}

}  // namespace hvd::backend::cuda
