// A call frame of the XLA FFI made by hand: a token and one tensor.
#pragma once

#include <string>
#include <vector>

#include "frameworks/jax/call_frame.h"
#include "horovod/horovod.h"

namespace hvd::test {

using namespace frameworks::jax;

// What a handler answered: XLA's code, 0 for none, and the text.
struct Told {
  int32_t code = 0;
  std::string text = "";
};

using Handler = void* (*)(void* call_frame);

class Frame {
 public:
  static constexpr int32_t kFloat32 = 11;  // in XLA

  // Addresses in the memory that the handler works on. The shape of the result is `result`, or that of the tensor.
  Frame(std::string description, void* token, void* new_token, void* in, void* out, std::vector<int64_t> shape,
        std::vector<int64_t> result = {})
      : text(std::move(description)), shapes{std::move(shape), std::move(result)} {
    if (shapes[1].empty()) shapes[1] = shapes[0];
    buffers[0] = {sizeof(Buffer), nullptr, kFloat32, token, 0, nullptr};
    buffers[1] = {sizeof(Buffer), nullptr, kFloat32, in, static_cast<int64_t>(shapes[0].size()), shapes[0].data()};
    buffers[2] = {sizeof(Buffer), nullptr, kFloat32, new_token, 0, nullptr};
    buffers[3] = {sizeof(Buffer), nullptr, kFloat32, out, static_cast<int64_t>(shapes[1].size()), shapes[1].data()};
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // `change` spoils the frame, or this.
  Told Call(Handler handler, void (*change)(CallFrame*, Frame*) = nullptr) {
    value = {text.data(), text.size()};
    CallFrame frame = {sizeof(CallFrame), nullptr, &api, this, kExecute, {}, {}, {}};
    frame.operands = {sizeof(Buffers), nullptr, 2, types, operands};
    frame.results = {sizeof(Buffers), nullptr, 2, types, results};
    frame.attributes = {sizeof(Attributes), nullptr, 1, &text_type, names, values};
    if (change != nullptr) change(&frame, this);
    auto* told = static_cast<Told*>(handler(&frame));
    if (told == nullptr) return {};
    const Told copy = *told;
    delete told;
    return copy;
  }

  Api api = {sizeof(Api), nullptr,    {sizeof(Version), nullptr, 0, 1}, nullptr, &Tell, nullptr, nullptr,
             nullptr,     &TellStream};
  std::string text;
  std::vector<int64_t> shapes[2];
  Buffer buffers[4];
  Buffer *operands[2] = {&buffers[0], &buffers[1]}, *results[2] = {&buffers[2], &buffers[3]};
  int32_t types[2] = {kBuffer, kBuffer}, text_type = kText;
  Text name = {"description", 11}, value = {};
  Text *names[1] = {&name}, *values[1] = {&value};
  void* stream = nullptr;  // of the computation

 private:
  static void* Tell(ErrorArguments* arguments) { return new Told{arguments->code, arguments->message}; }
  static void* TellStream(StreamArguments* arguments) {
    if (arguments->struct_bytes != sizeof(StreamArguments)) return new Told{3, "other arguments"};
    arguments->stream = static_cast<Frame*>(arguments->context)->stream;
    return nullptr;
  }
};

}  // namespace hvd::test
