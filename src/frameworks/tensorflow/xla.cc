#include "frameworks/tensorflow/xla.h"

#include <dlfcn.h>

#include <cstring>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "frameworks/tensorflow/dtypes.h"
#include "frameworks/tensorflow/wording.h"
#include "horovod/horovod.h"

namespace hvd::tensorflow {
namespace {

// XLA's XlaCustomCallStatus_, as far as the check below finds it to be so.
struct CallStatus {
  std::optional<std::string> message;
};

constexpr double kSliceS = 1.0;  // of a wait, which has no end of its own: the engine's deadlines apply

// One call, as horovod/tensorflow/xla.py writes it: a line of the call's own words, then a line per tensor.
//   TYPE PROCESS_SET REDUCE_OP ROOT PRESCALE POSTSCALE TENSORS
//   NAME DTYPE RESULT_BYTES EXTENT...
struct Description {
  std::vector<hvd_op> ops;
  std::vector<std::string> names;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t> result_bytes;
};

bool Parse(const std::string& text, Description* d) {
  std::istringstream lines(text);
  std::string line;
  hvd_op common = {};
  size_t n = 0;
  std::getline(lines, line);
  std::istringstream words(line);
  if (!(words >> common.type >> common.process_set >> common.reduce_op >> common.root_rank >> common.prescale >>
        common.postscale >> n) ||
      n == 0 || n > text.size()) {
    return false;
  }
  d->ops.assign(n, common);
  d->names.resize(n);
  d->shapes.resize(n);
  d->result_bytes.resize(n);
  for (size_t i = 0; i < n; ++i) {
    if (!std::getline(lines, line)) return false;
    std::istringstream tensor(line);
    int type = 0;
    if (!(tensor >> d->names[i] >> type >> d->result_bytes[i])) return false;
    for (int64_t extent = 0; tensor >> extent;) d->shapes[i].push_back(extent);
    hvd_op& op = d->ops[i];
    op.dtype = OwnType(type);
    op.name = d->names[i].c_str();
    op.shape = d->shapes[i].data();
    op.ndim = static_cast<int32_t>(d->shapes[i].size());
  }
  return true;
}

// Results of the core's memory. Their size was promised when the function was compiled.
hvd_status TakeResults(hvd_handle handle, const Description& d, void** out, std::string* why) {
  for (size_t i = 0; i < d.ops.size(); ++i) {
    hvd_result result = {};
    if (const hvd_status taken = hvd_take_result(handle, static_cast<int32_t>(i), &result); taken != HVD_OK)
      return taken;
    const bool fits = result.bytes == d.result_bytes[i];
    if (fits && result.bytes > 0) std::memcpy(out[i], result.data, static_cast<size_t>(result.bytes));
    hvd_result_free(result.owner);
    if (fits) continue;
    *why = "'" + d.names[i] + "' in a function compiled with XLA: the ranks' first dimensions differ (" +
           std::to_string(result.bytes) + " bytes in all, " + std::to_string(d.result_bytes[i]) +
           " expected from this rank's alone). Leave jit_compile off.";
    return HVD_INVALID_ARGUMENT;
  }
  return HVD_OK;
}

hvd_status Run(Description* d, const void** in, void** out, std::string* why) {
  const auto n = static_cast<int32_t>(d->ops.size());
  const bool caller_gives_output = d->ops[0].type == HVD_ALLREDUCE || d->ops[0].type == HVD_BROADCAST;
  for (int32_t i = 0; i < n; ++i) {
    d->ops[i].input = in[i];
    d->ops[i].output = caller_gives_output ? out[i] : nullptr;
  }
  hvd_handle handle = 0;
  hvd_status status = HVD_OK;
  if (caller_gives_output) {
    status = hvd_run(d->ops.data(), n, kSliceS, &handle);
  } else {
    status = hvd_submit(d->ops.data(), n, HVD_SUBMIT_WILL_WAIT, &handle);
    if (status == HVD_OK) status = HVD_IN_PROGRESS;
  }
  while (status == HVD_IN_PROGRESS) status = hvd_wait(handle, kSliceS);
  if (status == HVD_OK && !caller_gives_output) status = TakeResults(handle, *d, out, why);
  if (status != HVD_OK && why->empty()) *why = hvd_last_error();
  if (handle != 0) (void)hvd_release(handle);
  return status;
}

// The first operand and result are a token: successive calls of a function hand it on, so that XLA keeps their order.
void Target(void* out, const void** in, const char* opaque, size_t opaque_bytes, void* status) {
  void** results = static_cast<void**>(out);
  std::memcpy(results[0], in[0], sizeof(float));
  Description description;
  std::string why;
  if (!Parse(std::string(opaque, opaque_bytes), &description)) {
    why = "the description of a collective cannot be read";
  } else if (Run(&description, in + 1, results + 1, &why) == HVD_OK) {
    return;
  }
  static_cast<CallStatus*>(status)->message = InUsersWords(why);
}

}  // namespace

std::string RegisterXlaTarget() {
  void* library = dlopen("libtensorflow_cc.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return "this TensorFlow has no libtensorflow_cc.so.2";
  using GlobalFn = void* (*)();
  using RegisterFn = void (*)(void* registry, const std::string& name, void* target, const std::string& platform);
  using MessageFn = std::optional<std::string_view> (*)(const CallStatus*);
  const auto global = reinterpret_cast<GlobalFn>(dlsym(library, "_ZN3xla24CustomCallTargetRegistry6GlobalEv"));
  const auto add = reinterpret_cast<RegisterFn>(
      dlsym(library,
            "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPvS8_"));
  const auto message =
      reinterpret_cast<MessageFn>(dlsym(library, "_ZN3xla26CustomCallStatusGetMessageEPK20XlaCustomCallStatus_"));
  if (global == nullptr || add == nullptr || message == nullptr)
    return "this TensorFlow does not offer custom calls of XLA";
  // How a failure is told is XLA's own business: see that it is read as it is written here.
  const CallStatus probe{"Horovod asks"}, quiet{};
  if (message(&quiet).has_value() || message(&probe) != std::optional<std::string_view>("Horovod asks"))
    return "this TensorFlow's XLA reads the status of a custom call in another way";
  add(global(), "hvd_collective", reinterpret_cast<void*>(&Target), "Host");
  return "";
}

}  // namespace hvd::tensorflow
