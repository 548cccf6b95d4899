// A call without memory fails, says so and is done, and nothing writes to a tensor after it is released.
#include "frameworks/tensorflow/call.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "native/api/world.h"
#include "native/backend/cuda/gpu.h"
#include "native/frameworks/tensorflow/fake_tensorflow.h"
#include "native/harness/scarce_memory.h"

namespace hvd::test::frameworks_tensorflow_call {
namespace {

using frameworks::tensorflow::Attributes;
using frameworks::tensorflow::Call;
using frameworks::tensorflow::StatusFor;

constexpr int kFloat = 1, kInt32 = 3;
const size_t kElems = kSanitizer ? 10'000 : 1'000'000;  // long enough for an early release to be seen

// One execution of an operator, in a job of one rank.
struct Execution {
  explicit Execution(const Attributes& attributes) : attributes(attributes), input(kElems, 1.0f) {
    const auto n = static_cast<int64_t>(kElems);
    context.inputs[0] = {kFloat, {n}, 1, input.data(), kElems * sizeof(float), nullptr, nullptr};
    context.inputs[1] = {kInt32, {0}, 1, nullptr, 0, nullptr, nullptr};
    context.num_inputs = attributes.type == HVD_ALLTOALL ? 2 : attributes.type == HVD_JOIN ? 0 : 1;
  }
  ~Execution() {
    for (const TF_Tensor& output : context.outputs) std::free(output.data);
  }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Whether memory has failed.
  bool Run(int64_t granted) {
    std::atomic<int> done{0};
    std::function<void()> theirs = [&] { ++done; };
    bool met = false;
    {
      const ScarceMemory scarce(granted);
      Call::Start(attributes, &context, reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(&theirs));
      met = scarce.met();
    }
    const double until = 20 + Seconds();
    while (done == 0 && Seconds() < until) std::this_thread::yield();
    EXPECT_EQ(done, 1);
    if (context.failures > 0 && Data() != nullptr) before = Data()[kElems - 1];
    return met;
  }
  const float* Data() const { return static_cast<const float*>(context.outputs[0].data); }
  static double Seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  const Attributes attributes;
  std::vector<float> input;
  TF_OpKernelContext context;
  float before = 0;  // the last element of the output, when it was released
};

bool OneMoreAllocation(const Attributes& attributes, int64_t granted) {
  static const int32_t host = 0;
  const hvd_config config = PlainConfig(0, 1, &host);
  EXPECT_EQ(hvd_init(&config), HVD_OK);
  Execution scarce(attributes);
  const bool met = scarce.Run(granted);
  const TF_OpKernelContext& context = scarce.context;
  EXPECT(context.failures == 0 || (context.failures == 1 && met));
  if (context.failures > 0) {
    EXPECT_EQ(context.failure.code, frameworks::tensorflow::kResourceExhausted);
    if (std::string(context.failure.text).find("memory") == std::string::npos)
      Fail(__FILE__, __LINE__, std::to_string(granted) + ": " + context.failure.text);
  } else if (attributes.type != HVD_JOIN) {
    EXPECT(scarce.Data()[0] == 1.0f && scarce.Data()[kElems - 1] == 1.0f);
  }
  EXPECT_EQ(hvd_shutdown(10), HVD_OK);
  if (context.failures > 0 && attributes.type == HVD_ALLREDUCE && scarce.Data() != nullptr)
    EXPECT_EQ(scarce.Data()[kElems - 1], scarce.before);
  // Its name is free again.
  EXPECT_EQ(hvd_init(&config), HVD_OK);
  Execution plain(attributes);
  EXPECT(!plain.Run(1'000'000));
  EXPECT_EQ(plain.context.failures, 0);
  EXPECT_EQ(hvd_shutdown(10), HVD_OK);
  return met;
}

TEST(tensorflow_calls_without_memory_fail_and_are_done) {
  if (!kLibstdcxx) return Skip("needs libstdc++");
  const FakeTensorflow fake;
  Attributes attributes;
  attributes.name = "allreduce.with a name that is longer than any string holds in itself";
  attributes.reduce_op = HVD_SUM;
  const auto try_all = [&] {
    int64_t granted = 0;
    while (granted < 300 && OneMoreAllocation(attributes, granted)) ++granted;
    EXPECT(granted > 4 && granted < 300);
  };
  for (const hvd_op_type type : {HVD_ALLREDUCE, HVD_ALLGATHER, HVD_ALLTOALL, HVD_JOIN}) {
    attributes.type = type;
    for (const bool blocking : {true, false}) {
      attributes.blocking = blocking;
      try_all();
    }
  }
  attributes.type = HVD_ALLREDUCE;
  attributes.names = {attributes.name};
  for (const bool waits : {true, false}) {
    attributes.waits = waits;
    try_all();
  }
}

TEST(tensorflow_calls_on_a_device_without_a_stream_fail_and_are_done) {
  if (!kLibstdcxx) return Skip("needs libstdc++");
  const FakeTensorflow fake;
  static const int32_t host = 0;
  const hvd_config config = PlainConfig(0, 1, &host);
  EXPECT_EQ(hvd_init(&config), HVD_OK);
  Attributes attributes;
  attributes.name = "allreduce.placed";
  attributes.reduce_op = HVD_SUM;
  attributes.stream_of = [](void*, void**) {};
  Execution placed(attributes);
  EXPECT(!placed.Run(1'000'000));
  EXPECT_EQ(placed.context.failures, 1);
  EXPECT(std::string(placed.context.failure.text).find("has no CUDA stream") != std::string::npos);
  EXPECT_EQ(hvd_shutdown(10), HVD_OK);
}

TEST(tensorflow_calls_fail_if_their_stream_cannot_wait_for_them) {
  if (!kLibstdcxx) return Skip("needs libstdc++");
  NEEDS_FAKES();
  const FakeTensorflow fake;
  // In place, as TensorFlow gives memory that nobody else holds.
  frameworks::tensorflow::tf.TF_ForwardInputOrAllocateOutput = [](TF_OpKernelContext* context, const int*, int, int i,
                                                                  const int64_t*, int, int* forwarded, TF_Status*) {
    *forwarded = i;
    return FakeTensorflow::Handle(context->inputs[i]);
  };
  const Gpu gpu;
  static const int32_t host = 0;
  const hvd_config config = PlainConfig(0, 1, &host);
  EXPECT_EQ(hvd_init(&config), HVD_OK);
  const std::string cuda = PathOfCuda(), nccl = PathOfNccl();
  const hvd_gpu use = {sizeof(hvd_gpu), 0, cuda.c_str(), nccl.c_str(), nullptr, 0, 0};
  EXPECT_EQ(hvd_use_gpu(&use), HVD_OK);
  static void* handle = nullptr;
  const auto stream = gpu.NewStream();
  handle = stream->handle();
  Attributes attributes;
  attributes.name = "allreduce.on a GPU";
  attributes.reduce_op = HVD_SUM;
  attributes.prescale = 2;
  attributes.stream_of = [](void*, void** found) { *found = handle; };
  const auto tensor = gpu.Upload(Filled(kElems * sizeof(float), 1));
  for (const int failures : {0, 1}) {
    Execution call(attributes);
    call.context.inputs[0].data = tensor->data;
    if (failures > 0) gpu.fakes().fake_cuda_fail_next("cuStreamWaitEvent", 400);
    EXPECT(!call.Run(1'000'000));
    EXPECT_EQ(call.context.failures, failures);
    EXPECT(failures == 0 || std::string(call.context.failure.text).find("cuStreamWaitEvent") != std::string::npos);
    EXPECT_OK(stream->Synchronize());
  }
  EXPECT_EQ(hvd_shutdown(10), HVD_OK);
}

TEST(tensorflow_failures_are_reported_without_memory) {
  const FakeTensorflow fake;
  const std::string text(1000, 'x');
  EXPECT_EQ(std::string(StatusFor(HVD_MISMATCH, "allreduce 'allreduce.w'")->text), "Horovod: allreduce 'w'");
  const ScarceMemory scarce(0, /*lasting=*/true);
  EXPECT(StatusFor(HVD_MISMATCH, text.c_str()).get() == frameworks::tensorflow::no_memory);
}

}  // namespace
}  // namespace hvd::test::frameworks_tensorflow_call
