// Collectives inside functions that JAX compiles: handlers of the XLA FFI for the CPU and for CUDA. The attribute
// `description` says what to do (see described_call.h). The first operand and result are a token: successive calls hand
// it on, because XLA would neither keep their order nor have all of them under way.
//
// Both wait for the engine on XLA's thread. On CUDA that is the thread that launches the computation: it goes on when
// the ranks have agreed and the operations are on their way. Later kernels are launched later, but the GPU works on
// what it has been given, and where NCCL moves the tensors the host never waits for it.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "border/border.h"
#include "frameworks/described_call.h"
#include "frameworks/jax/call_frame.h"
#include "frameworks/wording.h"

namespace hvd::frameworks::jax {
namespace {

using frameworks::DescribedCall;

struct Element {
  int32_t xla;
  int32_t own;
  int64_t bytes;
};
constexpr Element kElements[] = {
    {1, HVD_BOOL, 1},      {2, HVD_INT8, 1},         {3, HVD_INT16, 2},          {4, HVD_INT32, 4},
    {5, HVD_INT64, 8},     {6, HVD_UINT8, 1},        {7, HVD_UINT16, 2},         {8, HVD_UINT32, 4},
    {9, HVD_UINT64, 8},    {10, HVD_FLOAT16, 2},     {11, HVD_FLOAT32, 4},       {12, HVD_FLOAT64, 8},
    {16, HVD_BFLOAT16, 2}, {19, HVD_FLOAT8_E5M2, 1}, {20, HVD_FLOAT8_E4M3FN, 1},
};

// A frame that has no such function does not come from XLA: the error cannot be reported.
void* Tell(const CallFrame& frame, int32_t code, const char* text) {
  if (frame.struct_bytes < offsetof(CallFrame, context) || frame.api == nullptr ||
      frame.api->struct_bytes < offsetof(Api, error_message) || frame.api->create_error == nullptr) {
    return nullptr;
  }
  ErrorArguments arguments = {sizeof(ErrorArguments), nullptr, text, code};
  return frame.api->create_error(&arguments);
}

void* Error(const CallFrame& frame, hvd_status status, const std::string& why) {
  const frameworks::Failure failure = frameworks::FailureFor(status);
  return Tell(frame, failure.xla, frameworks::InXlasWords(failure, why).c_str());
}

// True: XLA only asked what the handler is. Version 0.1 is what every XLA since then understands.
bool AnswerQuestion(const CallFrame& frame) {
  for (Extension* extension = frame.extensions; extension != nullptr; extension = extension->next) {
    if (extension->type != kMetadata || extension->struct_bytes < sizeof(MetadataExtension)) continue;
    Metadata* metadata = reinterpret_cast<MetadataExtension*>(extension)->metadata;
    metadata->version.major = 0;
    metadata->version.minor = 1;
    metadata->traits = 0;  // nor may XLA capture a call into a graph, which would repeat it without the other ranks
    return true;
  }
  return false;
}

std::optional<std::string_view> Description(const Attributes& attributes) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    if (attributes.types[i] == kText &&
        std::string_view(attributes.names[i]->data, attributes.names[i]->bytes) == "description")
      return std::string_view(attributes.values[i]->data, attributes.values[i]->bytes);
  }
  return std::nullopt;
}

// Bytes of a buffer of this type; -1: it is none.
int64_t Bytes(const Buffers& buffers, int64_t i, int32_t own_dtype) {
  if (buffers.types[i] != kBuffer || buffers.items[i]->struct_bytes < sizeof(Buffer)) return -1;
  const Buffer& buffer = *buffers.items[i];
  for (const Element& element : kElements) {
    if (element.xla != buffer.dtype || element.own != own_dtype) continue;
    int64_t bytes = element.bytes;
    for (int64_t d = 0; d < buffer.rank; ++d) bytes *= buffer.extents[d];
    return bytes == 0 || buffer.data != nullptr ? bytes : -1;
  }
  return -1;
}

bool SameShape(const Buffer& buffer, const hvd_op& op) {
  return buffer.rank == op.ndim && std::equal(op.shape, op.shape + op.ndim, buffer.extents);
}

// What is wrong with the operands and results; empty: nothing.
std::string Problem(const CallFrame& frame, const DescribedCall& call) {
  const Buffers &operands = frame.operands, &results = frame.results;
  const auto n = static_cast<int64_t>(call.ops().size());
  if (operands.size != n + 1 || results.size != n + 1) {
    return "a compiled function calls with " + std::to_string(operands.size) + " operands for " +
           std::to_string(results.size) + " results; the description has a token and " + std::to_string(n) +
           " tensors. Give ffi_call as many of both.";
  }
  if (Bytes(operands, 0, HVD_FLOAT32) != sizeof(float) || Bytes(results, 0, HVD_FLOAT32) != sizeof(float))
    return "a compiled function's call passes no token; its first operand and result must be a float32 scalar.";
  for (int64_t i = 0; i < n; ++i) {
    const hvd_op& op = call.ops()[static_cast<size_t>(i)];
    const int64_t given = Bytes(operands, i + 1, op.dtype), promised = call.result_bytes(static_cast<size_t>(i));
    const bool in_place = frameworks::WorksInPlace(op);
    if (given < 0 || !SameShape(*operands.items[i + 1], op) || (in_place && given != promised) ||
        Bytes(results, i + 1, op.dtype) != promised) {
      return "'" + std::string(op.name) + "': operand or result " + std::to_string(i + 1) +
             " in a compiled function has another dtype or shape than the description says. Make both of one tensor.";
    }
    if (!in_place && promised > 0 && operands.items[i + 1]->data == results.items[i + 1]->data) {
      return "'" + std::string(op.name) + "': operand and result " + std::to_string(i + 1) +
             " share memory, which allreduce and broadcast alone can use. Leave them out of input_output_aliases.";
    }
  }
  return "";
}

// The stream of a computation on CUDA, and the GPU of this rank. XLA numbers its devices in ways that have changed, so
// the core is asked; with none in use it refuses the tensors, and tells the other ranks. Leaves `where` alone if there
// is an error.
void* FindDevice(const CallFrame& frame, Where* where) {
  if (frame.api == nullptr || frame.api->struct_bytes < sizeof(Api) || frame.api->get_stream == nullptr)
    return Error(frame, HVD_UNSUPPORTED, "this XLA does not expose the stream of computations. Use jax 0.5 or later.");
  StreamArguments arguments = {sizeof(StreamArguments), nullptr, frame.context, nullptr};
  if (void* error = frame.api->get_stream(&arguments); error != nullptr) return error;
  int32_t place = 0;
  (void)hvd_gpu_place(&place);
  *where = {std::max(place, 1), arguments.stream};
  return nullptr;
}

// What XLA computes on.
enum class Platform { kCpu, kCuda };

void* Collective(const CallFrame& frame, Platform platform) {
  if (AnswerQuestion(frame)) return nullptr;
  if (frame.struct_bytes < sizeof(CallFrame)) {
    return Error(frame, HVD_UNSUPPORTED,
                 "XLA calls with a frame of " + std::to_string(frame.struct_bytes) + " bytes; " +
                     std::to_string(sizeof(CallFrame)) + " are needed. Use jax 0.5 or later.");
  }
  if (frame.stage != kExecute) return nullptr;
  const std::optional<std::string_view> description = Description(frame.attributes);
  DescribedCall call;
  if (!description || !call.Parse(*description)) {
    return Error(frame, HVD_INVALID_ARGUMENT,
                 "a compiled function's call has no description of a collective that can be read. Give ffi_call the "
                 "attribute `description`, as python/horovod/_core/operations/described_call.py writes it.");
  }
  if (const std::string problem = Problem(frame, call); !problem.empty())
    return Error(frame, HVD_INVALID_ARGUMENT, problem);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (int64_t i = 0; i < frame.operands.size; ++i) {
    in.push_back(frame.operands.items[i]->data);
    out.push_back(frame.results.items[i]->data);
  }
  Where where;
  if (platform == Platform::kCuda) {
    // The token lies on the GPU and is left as it is: nobody reads it.
    void* const error = FindDevice(frame, &where);
    if (where.place == 0) return error;
  } else {
    std::memmove(out[0], in[0], sizeof(float));
  }
  std::string why;
  const hvd_status status = call.Run(in.data() + 1, out.data() + 1, where, &why);
  return status == HVD_OK ? nullptr : Error(frame, status, why);
}

void* Handle(void* call_frame, Platform platform) {
  const auto& frame = *static_cast<const CallFrame*>(call_frame);
  void* error = nullptr;
  border::Guarded([&] { error = Collective(frame, platform); },
                  [&](hvd_status status, const char* why) {
                    const frameworks::Failure failure = frameworks::FailureFor(status);
                    char text[300];  // as InXlasWords has it, without memory
                    (void)std::snprintf(text, sizeof text, "Horovod %s: %s", failure.name, why);
                    error = Tell(frame, failure.xla, static_cast<const char*>(text));
                  });
  return error;
}

}  // namespace
}  // namespace hvd::frameworks::jax

extern "C" void* hvd_jax_collective(void* call_frame) {
  return hvd::frameworks::jax::Handle(call_frame, hvd::frameworks::jax::Platform::kCpu);
}

extern "C" void* hvd_jax_collective_on_cuda(void* call_frame) {
  return hvd::frameworks::jax::Handle(call_frame, hvd::frameworks::jax::Platform::kCuda);
}
