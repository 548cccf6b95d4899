#include "frameworks/tensorflow/xla.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "border/border.h"
#include "frameworks/described_call.h"
#include "frameworks/tensorflow/gnu.h"
#include "frameworks/wording.h"

namespace hvd::frameworks::tensorflow {
namespace {

// XLA's XlaCustomCallStatus_, as far as the check below finds it to be so.
struct CallStatus {
  GnuOptionalString message;
};

void* (*allocate)(size_t bytes, const std::nothrow_t&) = nullptr;  // TensorFlow's operator new

using frameworks::DescribedCall;
using frameworks::Where;

void Tell(hvd_status failure, const char* why, CallStatus* status) noexcept {
  bool is_set = false;
  (void)border::Succeeds(
      [&] { is_set = status->message.Set(frameworks::InXlasWords(frameworks::FailureFor(failure), why), allocate); });
  if (!is_set) (void)status->message.Set(border::kNoMemory, allocate);  // too short to need any
}

bool Parse(const char* opaque, size_t opaque_bytes, DescribedCall* call, CallStatus* status) {
  if (call->Parse({opaque, opaque_bytes})) return true;
  Tell(HVD_INTERNAL, "the description of a collective cannot be read", status);
  return false;
}

void Run(DescribedCall* call, const void* const* in, void* const* out, const Where& where, CallStatus* status) {
  std::string why;
  const hvd_status failure = call->Run(in, out, where, &why);
  if (failure != HVD_OK) Tell(failure, why.c_str(), status);
}

template <class Body>
void Guarded(CallStatus* status, Body body) noexcept {
  border::Guarded(body, [status](hvd_status code, const char* why) { Tell(code, why, status); });
}

// The first operand and result are a token: successive calls of a function hand it on, so that XLA keeps their order.
void OnHost(void* out, const void** in, const char* opaque, size_t opaque_bytes, CallStatus* status) {
  void** results = static_cast<void**>(out);
  std::memcpy(results[0], in[0], sizeof(float));
  Guarded(status, [&] {
    DescribedCall call;
    if (Parse(opaque, opaque_bytes, &call, status)) Run(&call, in + 1, results + 1, Where(), status);
  });
}

// `buffers` holds the operands, then the results: memory of the GPU that `stream` belongs to. XLA's thread, which
// launches the rest of the function, goes on when the call is on its way, and nobody waits for the GPU. A token is not
// copied, since nobody looks at one. With no GPU in use, the core refuses the tensors and tells the other ranks.
void OnCuda(void* stream, void** buffers, const char* opaque, size_t opaque_bytes, CallStatus* status) {
  Guarded(status, [&] {
    DescribedCall call;
    if (!Parse(opaque, opaque_bytes, &call, status)) return;
    int32_t place = 0;
    (void)hvd_gpu_place(&place);
    void** results = buffers + 1 + call.ops().size();
    Run(&call, buffers + 1, results + 1, {std::max(place, 1), stream}, status);
  });
}

}  // namespace

std::string RegisterXlaTarget() {
  void* library = dlopen("libtensorflow_cc.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return "this TensorFlow has no libtensorflow_cc.so.2";
  using GlobalFn = void* (*)();
  using RegisterFn = void (*)(void* registry, const GnuString& name, void* target, const GnuString& platform);
  using MessageFn = GnuOptionalView (*)(const CallStatus*);
  const auto global = reinterpret_cast<GlobalFn>(dlsym(library, "_ZN3xla24CustomCallTargetRegistry6GlobalEv"));
  const auto add = reinterpret_cast<RegisterFn>(
      dlsym(library,
            "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPvS8_"));
  const auto message =
      reinterpret_cast<MessageFn>(dlsym(library, "_ZN3xla26CustomCallStatusGetMessageEPK20XlaCustomCallStatus_"));
  allocate = reinterpret_cast<decltype(allocate)>(dlsym(library, "_ZnwmRKSt9nothrow_t"));
  if (global == nullptr || add == nullptr || message == nullptr || allocate == nullptr)
    return "this TensorFlow does not offer custom calls of XLA";
  // How a failure is reported is internal to XLA: check that it is read as it is written here.
  const CallStatus probe{{GnuToRead("Horovod asks"), true}}, quiet{};
  if (message(&quiet).has_value || !(message(&probe) == "Horovod asks"))
    return "this TensorFlow's XLA reads the status of a custom call in another way";
  const GnuString name = GnuToRead("hvd_collective");
  add(global(), name, reinterpret_cast<void*>(&OnHost), GnuToRead("Host"));
  add(global(), name, reinterpret_cast<void*>(&OnCuda), GnuToRead("CUDA"));
  return "";
}

}  // namespace hvd::frameworks::tensorflow
