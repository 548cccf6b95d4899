// Tests of hvd_jax_collective with frames made by hand: what it answers when XLA asks, and that it refuses what it
// cannot run. There is no engine here, so a call that is in order says so.
#include <cstdio>
#include <string>

#include "native/frameworks/jax/frame.h"
#include "native/harness/harness.h"
#include "native/harness/scarce_memory.h"

namespace hvd::test::frameworks_jax_ffi {
namespace {

// A call with a token and one float32 tensor of three elements, in the memory of the host.
struct HostFrame {
  float token = 1, new_token = 0;
  float in[3] = {1, 2, 3}, out[3] = {};
  Frame frame{"0 0 1 0 1 1 1 allreduce.a 7 12 1 3", &token, &new_token, in, out, {3}};

  Told Call(void (*change)(CallFrame*, Frame*) = nullptr) { return frame.Call(&hvd_jax_collective, change); }
};

void ExpectRefused(const std::string& words, void (*change)(CallFrame*, Frame*)) {
  const Told told = HostFrame().Call(change);
  EXPECT_EQ(told.code, 3);
  if (told.text.find(words) == std::string::npos) Fail(__FILE__, __LINE__, words + " is not in: " + told.text);
}

TEST(JaxHandlerSaysItsVersion) {
  Metadata metadata = {sizeof(Metadata), {sizeof(Version), nullptr, -1, -1}, 77};
  MetadataExtension question = {{sizeof(MetadataExtension), kMetadata, nullptr}, &metadata};
  CallFrame frame = {};
  frame.struct_bytes = sizeof frame;
  frame.extensions = &question.base;
  for (const Handler handler : {&hvd_jax_collective, &hvd_jax_collective_on_cuda}) {
    metadata = {sizeof(Metadata), {sizeof(Version), nullptr, -1, -1}, 77};
    EXPECT(handler(&frame) == nullptr);
    EXPECT(metadata.version.major == 0 && metadata.version.minor == 1 && metadata.traits == 0);
  }
}

TEST(JaxHandlerRunsWhatIsInOrder) {
  const Told told = HostFrame().Call();
  EXPECT_EQ(told.code, 9);
  EXPECT(told.text.starts_with("Horovod NotInitializedError: "));
}

TEST(JaxHandlerLeavesOtherStagesAlone) {
  EXPECT_EQ(HostFrame().Call([](CallFrame* frame, Frame*) { frame->stage = 2; }).code, 0);
}

TEST(JaxHandlerRefusesOtherFrames) {
  const Told old = HostFrame().Call([](CallFrame* frame, Frame*) { frame->struct_bytes -= 8; });
  EXPECT_EQ(old.code, 12);
  EXPECT(old.text.find("Use jax 0.5 or later") != std::string::npos);
  // Nobody can be told.
  EXPECT_EQ(HostFrame().Call([](CallFrame* frame, Frame*) { frame->struct_bytes = 8; }).code, 0);
}

TEST(JaxHandlerRefusesWhatTheDescriptionDoesNotSay) {
  ExpectRefused("no description", [](CallFrame* frame, Frame*) { frame->attributes.size = 0; });
  ExpectRefused("no description", [](CallFrame*, Frame* own) { own->text_type = 3; });
  ExpectRefused("no description", [](CallFrame*, Frame* own) { own->value.bytes = 5; });
  ExpectRefused("2 operands for 1 results", [](CallFrame* frame, Frame*) { frame->results.size = 1; });
  ExpectRefused("token", [](CallFrame*, Frame* own) { own->buffers[0].dtype = 12; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->buffers[1].dtype = 4; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->buffers[3].dtype = 15; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->shapes[0][0] = 4; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->buffers[1].rank = 0; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->buffers[1].data = nullptr; });
  ExpectRefused("another dtype or shape", [](CallFrame*, Frame* own) { own->buffers[1].struct_bytes = 8; });
  ExpectRefused("share memory", [](CallFrame*, Frame* own) {
    own->text = "3 0 0 0 1 1 1 alltoall.a 7 12 1 3";
    own->value = {own->text.data(), own->text.size()};
    own->buffers[3].data = own->buffers[1].data;
  });
  ExpectRefused("no token", [](CallFrame*, Frame* own) { own->types[0] = own->types[1] = 2; });
}

// What XLA was told, noted without memory.
int32_t noted_code = 0;
char noted_text[400];

void* Note(ErrorArguments* arguments) {
  noted_code = arguments->code;
  (void)std::snprintf(noted_text, sizeof noted_text, "%s", arguments->message);
  return nullptr;
}

TEST(JaxHandlerTellsThatThereIsNoMemory) {
  for (const bool lasting : {false, true}) {
    int64_t granted = 0;
    for (bool met = true; met && granted < 200; ++granted) {
      HostFrame frame;
      frame.frame.api.create_error = &Note;
      noted_code = 0;
      {
        const ScarceMemory scarce(granted, lasting);
        (void)frame.Call();
        met = scarce.met();
      }
      EXPECT(noted_code == 9 || (met && noted_code == 8));
      EXPECT(std::string(noted_text).starts_with("Horovod "));
      if (granted == 0) EXPECT_EQ(std::string(noted_text), "Horovod ResourceError: out of memory.");
    }
    EXPECT(granted > 3 && granted < 200);
  }
}

}  // namespace
}  // namespace hvd::test::frameworks_jax_ffi
