// Tests of hvd_mxnet_*, on one rank, with a fake of MXNet; tests/mxnet19 has the real one, on two.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "native/api/world.h"
#include "native/frameworks/mxnet/fake_mxnet.h"
#include "native/harness/harness.h"
#include "native/harness/scarce_memory.h"

namespace hvd::test::frameworks_mxnet_request {
namespace {

constexpr double kAtOnceS = 0.01;

// A job of one rank, and an allreduce, which doubles: of an array into another one, or in place.
class Job {
 public:
  Job() {
    static const int32_t host = 0;
    const hvd_config config = PlainConfig(0, 1, &host);
    EXPECT_EQ(hvd_init(&config), HVD_OK);
  }
  ~Job() { EXPECT_EQ(hvd_shutdown(10), HVD_OK); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  hvd_status Prepare(void** request, bool in_place = false, std::string name = "allreduce.a", int32_t n = 1) {
    const int64_t extent = 3;
    hvd_op op = {};
    op.type = HVD_ALLREDUCE;
    op.dtype = HVD_FLOAT32;
    op.reduce_op = HVD_SUM;
    op.ndim = 1;
    op.prescale = 2;
    op.postscale = 1;
    op.name = name.c_str();
    op.input = &input;
    op.output = in_place ? &input : &output;
    op.shape = &extent;
    return hvd_mxnet_prepare(&op, n, &functions, kAtOnceS, request);
  }  // nothing of the op is left

  hvd_mxnet_functions functions = FakeFunctions();
  FakeArray input{std::make_shared<FakeMemory>(FakeMemory{{1, 2, 3}})};
  FakeArray output{std::make_shared<FakeMemory>(FakeMemory{{0, 0, 0}})};
};

using Values = std::vector<float>;

TEST(MxnetRequestRunsAndKeepsItsArraysUntilItsEnd) {
  Job job;
  void* request = nullptr;
  EXPECT_EQ(job.Prepare(&request), HVD_OK);
  EXPECT_EQ(FakeArray::alive.load(), 4);
  EXPECT_EQ(RunToItsEnd(request), "");
  EXPECT_EQ(FakeArray::alive.load(), 2);
  EXPECT(job.output.memory->values == (Values{2, 4, 6}));
  EXPECT(job.input.memory->values == (Values{1, 2, 3}));
}

TEST(MxnetRequestReadsACopyOfAnotherLayoutAndWritesTheUsualOne) {
  Job job;
  job.input.memory->reversed = job.output.memory->reversed = true;
  void* request = nullptr;
  EXPECT_EQ(job.Prepare(&request), HVD_OK);
  EXPECT_EQ(RunToItsEnd(request), "");
  EXPECT(job.output.memory->values == (Values{6, 4, 2}));
  EXPECT(job.input.memory->reversed && job.input.memory->values == (Values{1, 2, 3}));
  EXPECT_EQ(job.Prepare(&request, true), HVD_OK);
  EXPECT_EQ(RunToItsEnd(request), "");
  EXPECT(!job.input.memory->reversed && job.input.memory->values == (Values{6, 4, 2}));
  // An MXNet without oneDNN has neither function.
  job.functions.usual_copy = job.functions.usual_place = nullptr;
  EXPECT_EQ(job.Prepare(&request), HVD_OK);
  EXPECT_EQ(RunToItsEnd(request), "");
  EXPECT(job.output.memory->values == (Values{12, 8, 4}));
}

TEST(MxnetRequestWaitsForItsName) {
  Job job;
  void *first = nullptr, *second = nullptr;
  EXPECT_EQ(job.Prepare(&first), HVD_OK);
  EXPECT_EQ(job.Prepare(&second), HVD_IN_PROGRESS);
  EXPECT(second == nullptr);
  EXPECT_EQ(job.Prepare(&second, false, "allreduce.b"), HVD_OK);
  EXPECT_EQ(RunToItsEnd(first), "");
  EXPECT_EQ(job.Prepare(&first), HVD_OK);
  for (void* request : {first, second}) EXPECT_EQ(RunToItsEnd(request), "");
}

// It is refused, too: what the other ranks learn by that is tested with MXNet.
TEST(MxnetRequestThatIsLeftOutGivesBackNameAndArrays) {
  Job job;
  void* request = nullptr;
  EXPECT_EQ(job.Prepare(&request), HVD_OK);
  hvd_mxnet_drop(request);
  EXPECT_EQ(FakeArray::alive.load(), 2);
  EXPECT_EQ(job.Prepare(&request), HVD_OK);
  EXPECT_EQ(RunToItsEnd(request), "");
}

TEST(MxnetRequestSaysWhyItFails) {
  void* request = nullptr;
  {
    Job job;
    EXPECT_EQ(job.Prepare(&request, false, "allreduce.a", 0), HVD_INVALID_ARGUMENT);
    --job.functions.struct_bytes;
    EXPECT_EQ(job.Prepare(&request), HVD_INVALID_ARGUMENT);
    ++job.functions.struct_bytes;
    job.input.memory->missing = true;
    EXPECT_EQ(job.Prepare(&request), HVD_OK);
    EXPECT_EQ(RunToItsEnd(request), "Horovod ResourceError: MXNet has no memory for a tensor of this operation.");
    job.input.memory->missing = false;
    EXPECT_EQ(job.Prepare(&request), HVD_OK);
  }
  const std::string failure = RunToItsEnd(request);
  EXPECT(failure.starts_with("Horovod NotInitializedError: "));
}

TEST(MxnetRequestWithoutMemoryIsNotMade) {
  Job job;
  job.input.memory->reversed = true;
  int failures = 0;
  bool met = true;
  for (int64_t granted = 0; met && granted < 300; ++granted) {
    void* request = nullptr;
    hvd_status status = HVD_OK;
    {
      std::string name = "allreduce.a";
      const ScarceMemory scarce(granted);
      status = job.Prepare(&request, false, std::move(name));
      met = scarce.met();
    }
    EXPECT(status == (met ? HVD_RESOURCE : HVD_OK) && (request == nullptr) == met);
    EXPECT_EQ(FakeArray::alive.load(), met ? 2 : 4);
    failures += met;
    if (!met) EXPECT_EQ(RunToItsEnd(request), "");
  }
  EXPECT(failures > 4 && !met);
}

}  // namespace
}  // namespace hvd::test::frameworks_mxnet_request
