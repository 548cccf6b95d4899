// HIP's runtime compiler for tests: it knows one text, the packing kernels, which the fake driver can run. Whether that
// text is right is tested by itself (packing_kernels_test.cc).
#include <cstring>
#include <string>

#include "native/backend/cuda/fake/control.h"
#include "native/backend/cuda/fake/hip/fake_hip.h"

#define HVD_KERNELS(...) #__VA_ARGS__

namespace fake {
namespace {

constexpr const char* kPacking =
#include "backend/cuda/packing/packing_hip.inc"
    ;
constexpr int kSuccess = 0, kInvalidInput = 3, kCompilation = 6;

struct Program {
  std::string text, log, code;
};

}  // namespace
}  // namespace fake

using namespace fake;  // NOLINT: the functions have to be global

EXPORT int hiprtcCreateProgram(Program** made, const char* text, const char*, int headers, const char* const*,
                               const char* const*) {
  if (headers != 0) return kInvalidInput;
  *made = new Program{text, "", ""};
  return kSuccess;
}
// FAKE_HIPRTC_LOG: it fails, and says this. Without an architecture the real one asks a HIP that it looks for itself.
EXPORT int hiprtcCompileProgram(Program* program, int options, const char* const* option) {
  const char* const log = std::getenv("FAKE_HIPRTC_LOG");
  const bool for_device = options == 1 && std::string("--offload-arch=") + kArchitecture == option[0];
  if (log != nullptr || program->text != kPacking || !for_device) {
    program->log = log != nullptr ? log
                   : for_device   ? "error: this is not the text of the packing kernels"
                                  : "error: the one option has to be the devices' architecture";
    return kCompilation;
  }
  program->code = kCodeObject;
  for (const char* const kernel : {"pack_bytes", "pack_f32", "pack_f16", "pack_bf16"})
    program->code += std::string(".entry ") + kernel + "(\n";
  return kSuccess;
}
// Sizes count the zero at the end of a text.
EXPORT int hiprtcGetProgramLogSize(Program* program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return kSuccess;
}
EXPORT int hiprtcGetProgramLog(Program* program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kSuccess;
}
EXPORT int hiprtcGetCodeSize(Program* program, size_t* bytes) {
  *bytes = program->code.size() + 1;
  return kSuccess;
}
EXPORT int hiprtcGetCode(Program* program, char* code) {
  std::memcpy(code, program->code.c_str(), program->code.size() + 1);
  return kSuccess;
}
EXPORT int hiprtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}
EXPORT const char* hiprtcGetErrorString(int code) {
  return code == kCompilation ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_ERROR_INVALID_INPUT";
}
