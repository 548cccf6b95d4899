// Tests of hvd_jax_collective_on_cuda on one rank, over the fake driver: what the stream of a computation sees, for
// what the host waits, and how failures are told. Several ranks meet in tests/integration/gpu/test_jax_frames.py.
#include <cstring>
#include <string>
#include <vector>

#include "native/api/world.h"
#include "native/backend/cuda/gpu.h"
#include "native/frameworks/jax/frame.h"

namespace hvd::test::frameworks_jax_cuda {
namespace {

constexpr int kElems = 1000;
constexpr size_t kBytes = kElems * sizeof(float);

// A job of one rank, until the end of the scope.
class Alone {
 public:
  explicit Alone(bool with_gpu = true) {
    static const int32_t host = 0;
    const hvd_config config = PlainConfig(0, 1, &host);
    EXPECT_EQ(hvd_init(&config), HVD_OK);
    if (!with_gpu) return;
    const std::string cuda = PathOfCuda(), nccl = PathOfNccl();
    const hvd_gpu gpu = {sizeof(hvd_gpu), 0, cuda.c_str(), nccl.c_str(), nullptr, 0, 0};
    EXPECT_EQ(hvd_use_gpu(&gpu), HVD_OK);
  }
  ~Alone() { EXPECT_EQ(hvd_shutdown(5), HVD_OK); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
};

// An operation that doubles, on a tensor of kElems elements.
std::string Description(int type) {
  const std::string elems = std::to_string(kElems), bytes = std::to_string(kBytes);
  const bool reduces = type == HVD_ALLREDUCE || type == HVD_REDUCESCATTER;
  return std::to_string(type) + " 0 1 0 " + (reduces ? "2" : "1") + " 1 1 x.a 7 " + bytes + " 1 " + elems;
}

// Tensors on the GPU, and a call on them in a stream.
class Call {
 public:
  Call(const Gpu& gpu, int type, bool in_place = false)
      : gpu_(gpu),
        token_(gpu.Upload(Filled(sizeof(float), 0))),
        in_(gpu.Upload(Filled(kBytes, 1))),
        out_(gpu.Upload(Filled(kBytes, 2))),
        stream_(gpu.NewStream()),
        frame_(Description(type), token_->data, token_->data, in_->data, result(in_place), {kElems}),
        in_place_(in_place) {
    frame_.stream = stream_->handle();
  }
  ~Call() { EXPECT_OK(stream_->Synchronize()); }

  Frame& frame() { return frame_; }
  Told Run(void (*change)(CallFrame*, Frame*) = nullptr) { return frame_.Call(&hvd_jax_collective_on_cuda, change); }
  // Has the stream make a tensor of this value, calls, and has the stream read the result.
  Told RunBetween(float value) {
    made_.assign(kElems, value);
    read_.assign(kElems, 0);
    const Driver& driver = gpu_.driver();
    EXPECT_OK(backend::cuda::CallIn(gpu_.context(), driver->memcpy_htod_async, AddressOf(in_->data), made_.data(),
                                    kBytes, stream_->handle()));
    Told told = Run();
    const std::byte* const from = result(in_place_);
    EXPECT_OK(backend::cuda::CallIn(gpu_.context(), driver->memcpy_dtoh_async, read_.data(), AddressOf(from), kBytes,
                                    stream_->handle()));
    return told;
  }
  std::vector<float> Read() const {
    EXPECT_OK(stream_->Synchronize());
    return read_;
  }

 private:
  std::byte* result(bool in_place) const { return in_place ? in_->data : out_->data; }

  const Gpu& gpu_;
  std::unique_ptr<Block> token_, in_, out_;
  std::shared_ptr<Stream> stream_;
  Frame frame_;
  const bool in_place_;
  std::vector<float> made_, read_;
};

std::string InRecord(const Fakes& fakes, const std::string& words) {
  const std::string record = fakes.Record();
  return record.find(words) == std::string::npos ? "" : record;
}

void ExpectTold(const Told& told, int32_t code, const std::string& words) {
  EXPECT_EQ(told.code, code);
  if (told.text.find(words) == std::string::npos) Fail(__FILE__, __LINE__, words + " is not in: " + told.text);
}

// The stream makes the tensor late and reads the result at once: only its order makes that right.
TEST(jax_on_cuda_keeps_the_order_of_the_stream) {
  const Gpu gpu;
  const Alone job;
  for (const int type : {HVD_ALLREDUCE, HVD_BROADCAST, HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
    for (const bool in_place : {false, true}) {
      const bool can = type == HVD_ALLREDUCE || type == HVD_BROADCAST;
      if (in_place && !can) continue;
      Call call(gpu, type, in_place);
      const bool doubles = type == HVD_ALLREDUCE || type == HVD_REDUCESCATTER;
      for (const float value : {1.5f, 4.0f}) {
        EXPECT_EQ(call.RunBetween(value).text, "");
        EXPECT(call.Read() == std::vector<float>(kElems, doubles ? 2 * value : value));
      }
    }
  }
}

TEST(jax_on_cuda_waits_for_no_work_of_the_gpu) {
  const Gpu gpu;
  const Alone job;
  Call call(gpu, HVD_ALLREDUCE);
  EXPECT_EQ(call.RunBetween(1).text, "");
  (void)call.Read();
  gpu.fakes().fake_cuda_stall(1);
  gpu.fakes().fake_cuda_record_start();
  EXPECT_EQ(call.RunBetween(3).text, "");
  EXPECT_EQ(InRecord(gpu.fakes(), "host sync"), "");
  gpu.fakes().fake_cuda_stall(0);
  EXPECT(call.Read() == std::vector<float>(kElems, 6));
}

TEST(jax_on_cuda_tells_what_is_wrong) {
  const Gpu gpu;
  Call call(gpu, HVD_ALLREDUCE);
  ExpectTold(call.Run(), 9, "Horovod NotInitializedError: ");
  {
    const Alone job(false);
    ExpectTold(call.Run(), 3, "Horovod InvalidArgumentError: allreduce 'x.a': no GPU is in use on this rank");
  }
  const Alone job;
  ExpectTold(call.Run([](CallFrame*, Frame* own) { own->shapes[0][0] = kElems - 1; }), 3, "another dtype or shape");
  ExpectTold(call.Run([](CallFrame*, Frame* own) { own->shapes[1][0] = kElems + 1; }), 3, "another dtype or shape");
  call.frame().shapes[0][0] = call.frame().shapes[1][0] = kElems;
  ExpectTold(call.Run([](CallFrame*, Frame* own) { own->api.struct_bytes -= sizeof(void*); }), 12, "jax 0.5 or later");
  call.frame().api.struct_bytes = sizeof(Api);
  const auto get_stream = call.frame().api.get_stream;
  call.frame().api.get_stream = [](StreamArguments*) -> void* { return new Told{13, "XLA has no stream"}; };
  ExpectTold(call.Run(), 13, "XLA has no stream");
  call.frame().api.get_stream = get_stream;
  EXPECT_EQ(call.RunBetween(1).text, "");
}

TEST(jax_on_cuda_is_no_part_of_a_graph) {
  NEEDS_FAKES();
  const Gpu gpu;
  const Alone job;
  Call call(gpu, HVD_ALLREDUCE);
  gpu.fakes().fake_cuda_set_capturing(call.frame().stream, 1);
  ExpectTold(call.Run(), 12,
             "Horovod UnsupportedError: allreduce 'x.a': this CUDA stream is being captured into a graph");
  gpu.fakes().fake_cuda_set_capturing(call.frame().stream, 0);
  EXPECT_EQ(call.RunBetween(2).text, "");
  EXPECT(call.Read() == std::vector<float>(kElems, 4));
}

TEST(jax_on_cuda_tells_what_fails_on_the_gpu) {
  NEEDS_FAKES();
  const Gpu gpu;
  const Alone job;
  Call call(gpu, HVD_ALLREDUCE);
  EXPECT_EQ(call.RunBetween(1).text, "");
  (void)call.Read();
  // The stream could not be ordered behind the operation.
  gpu.fakes().fake_cuda_fail_next("cuStreamWaitEvent", 400);
  const Told told = call.Run();
  EXPECT(told.code != 0);
  EXPECT(told.text.find("cuStreamWaitEvent") != std::string::npos);
}

}  // namespace
}  // namespace hvd::test::frameworks_jax_cuda
