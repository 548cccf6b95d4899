// Tests of hvd_jax_collective with frames made by hand: what it answers when XLA asks, and that it refuses what it
// cannot run. There is no engine here, so a call that is in order says so.
#include <cstring>
#include <string>
#include <vector>

#include "frameworks/jax/call_frame.h"
#include "horovod/horovod.h"
#include "native/harness/harness.h"

namespace {

using namespace hvd::frameworks::jax;

struct Told {
  int32_t code;
  std::string text;
};

void* Tell(ErrorArguments* arguments) { return new Told{arguments->code, arguments->message}; }

// A call with a token and one float32 tensor of three elements.
struct Frame {
  Api api = {sizeof(Api), nullptr, {sizeof(Version), nullptr, 0, 1}, nullptr, &Tell};
  float token = 1, new_token = 0;
  float in[3] = {1, 2, 3}, out[3] = {};
  int64_t extents[1] = {3};
  Buffer buffers[4] = {{sizeof(Buffer), nullptr, 11, &token, 0, nullptr},
                       {sizeof(Buffer), nullptr, 11, in, 1, extents},
                       {sizeof(Buffer), nullptr, 11, &new_token, 0, nullptr},
                       {sizeof(Buffer), nullptr, 11, out, 1, extents}};
  Buffer *operands[2] = {&buffers[0], &buffers[1]}, *results[2] = {&buffers[2], &buffers[3]};
  int32_t types[2] = {kBuffer, kBuffer}, text_type = kText;
  std::string text = "0 0 1 0 1 1 1 allreduce.a 7 12 1 3";
  Text name = {"description", 11}, value = {};
  Text *names[1] = {&name}, *values[1] = {&value};

  Told Call(void (*change)(CallFrame*, Frame*) = nullptr) {
    value = {text.data(), text.size()};
    CallFrame frame = {sizeof(CallFrame), nullptr, &api, nullptr, kExecute, {}, {}, {}};
    frame.operands = {sizeof(Buffers), nullptr, 2, types, operands};
    frame.results = {sizeof(Buffers), nullptr, 2, types, results};
    frame.attributes = {sizeof(Attributes), nullptr, 1, &text_type, names, values};
    if (change != nullptr) change(&frame, this);
    auto* told = static_cast<Told*>(hvd_jax_collective(&frame));
    if (told == nullptr) return {0, ""};
    const Told copy = *told;
    delete told;
    return copy;
  }
};

void ExpectRefused(const std::string& words, void (*change)(CallFrame*, Frame*)) {
  const Told told = Frame().Call(change);
  EXPECT_EQ(told.code, 3);
  if (told.text.find(words) == std::string::npos)
    hvd::test::Fail(__FILE__, __LINE__, words + " is not in: " + told.text);
}

}  // namespace

TEST(JaxHandlerSaysItsVersion) {
  Metadata metadata = {sizeof(Metadata), {sizeof(Version), nullptr, -1, -1}, 77};
  MetadataExtension question = {{sizeof(MetadataExtension), kMetadata, nullptr}, &metadata};
  CallFrame frame = {};
  frame.struct_bytes = sizeof frame;
  frame.extensions = &question.base;
  EXPECT(hvd_jax_collective(&frame) == nullptr);
  EXPECT(metadata.version.major == 0 && metadata.version.minor == 1 && metadata.traits == 0);
}

TEST(JaxHandlerRunsWhatIsInOrder) {
  const Told told = Frame().Call();
  EXPECT_EQ(told.code, 9);
  EXPECT(told.text.starts_with("Horovod NotInitializedError: "));
}

TEST(JaxHandlerLeavesOtherStagesAlone) {
  EXPECT_EQ(Frame().Call([](CallFrame* frame, Frame*) { frame->stage = 2; }).code, 0);
}

TEST(JaxHandlerRefusesOtherFrames) {
  const Told old = Frame().Call([](CallFrame* frame, Frame*) { frame->struct_bytes -= 8; });
  EXPECT_EQ(old.code, 12);
  EXPECT(old.text.find("Use jax 0.5 or later") != std::string::npos);
  // Nobody can be told.
  EXPECT_EQ(Frame().Call([](CallFrame* frame, Frame*) { frame->struct_bytes = 8; }).code, 0);
}

TEST(JaxHandlerRefusesWhatTheDescriptionDoesNotSay) {
  ExpectRefused("no description", [](CallFrame* frame, Frame*) { frame->attributes.size = 0; });
  ExpectRefused("no description", [](CallFrame*, Frame* own) { own->text_type = 3; });
  ExpectRefused("no description", [](CallFrame*, Frame* own) { own->value.bytes = 5; });
  ExpectRefused("2 operands for 1 results", [](CallFrame* frame, Frame*) { frame->results.size = 1; });
  ExpectRefused("token", [](CallFrame*, Frame* own) { own->buffers[0].dtype = 12; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->buffers[1].dtype = 4; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->buffers[3].dtype = 15; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->extents[0] = 4; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->buffers[1].rank = 0; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->buffers[1].data = nullptr; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->buffers[1].struct_bytes = 8; });
  ExpectRefused("no token", [](CallFrame*, Frame* own) { own->types[0] = own->types[1] = 2; });
}
