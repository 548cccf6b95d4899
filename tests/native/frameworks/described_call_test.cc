// Tests of frameworks/described_call.h: reading a text. Running one is tested from Python, with ranks.
#include "frameworks/described_call.h"

#include "border/border.h"
#include "native/api/world.h"
#include "native/harness/harness.h"
#include "native/harness/scarce_memory.h"

namespace hvd::test::frameworks_described_call {

namespace {

using hvd::frameworks::DescribedCall;

bool Reads(std::string_view text) { return DescribedCall().Parse(text); }

}  // namespace

TEST(DescribedCallReadsSubmissionsAndTheirTensors) {
  DescribedCall call;
  EXPECT(call.Parse("0 2 1 0 0.5 1e-05 2\nallreduce.a 7 24 2 2 3\nallreduce.b_2of2 10 2 0\n2 0 0 3 1 1 1\nc 9 0 1 0"));
  EXPECT_EQ(call.ops().size(), 3u);
  const hvd_op &a = call.ops()[0], &b = call.ops()[1], &c = call.ops()[2];
  EXPECT_EQ(std::string(a.name), "allreduce.a");
  EXPECT_EQ(std::string(b.name), "allreduce.b_2of2");
  EXPECT(a.type == HVD_ALLREDUCE && a.process_set == 2 && a.reduce_op == HVD_SUM && a.dtype == HVD_FLOAT32);
  EXPECT(a.prescale == 0.5 && a.postscale == 1e-05 && a.ndim == 2 && a.shape[0] == 2 && a.shape[1] == 3);
  EXPECT(b.dtype == HVD_BFLOAT16 && b.ndim == 0 && call.result_bytes(1) == 2);
  EXPECT(c.type == HVD_BROADCAST && c.root_rank == 3 && c.ndim == 1 && c.shape[0] == 0 && call.result_bytes(2) == 0);
}

TEST(DescribedCallRefusesOtherTexts) {
  const std::string good = "0 0 1 0 1 1 1\nallreduce.a 7 24 2 2 3";
  EXPECT(Reads(good));
  for (size_t n = 0; n < good.size(); ++n) EXPECT(!Reads(good.substr(0, n)));
  EXPECT(!Reads(good + " 4"));
  EXPECT(!Reads(std::string("0 0 1 0 1 1 1\n\0allreduce.a 7 24 0", 34)));
  EXPECT(!Reads("0 0 1 0 1 1 0"));
  EXPECT(!Reads("0 0 1 0 1 1 99999999999999\nallreduce.a 7 24 0"));
  EXPECT(!Reads("0 0 1 0 1 1 -1\nallreduce.a 7 24 0"));
  EXPECT(!Reads("0 0 1 0 1 1 1\nallreduce.a 7 24 -2"));
  EXPECT(!Reads("0 0 1 0 one 1 1\nallreduce.a 7 24 0"));
  EXPECT(!Reads("0 0 1 0 1 1 1\nallreduce.a 7.5 24 0"));
}

// Two submissions, the first of which promises too little: its text is told while the second may be under way.
TEST(DescribedCallThrowsNothingOnceItHasSubmitted) {
  static const int32_t host = 0;
  const hvd_config config = PlainConfig(0, 1, &host);
  const float in[3] = {1, 2, 3};
  float out[2][3] = {};
  const void* const ins[] = {in, in};
  void* const outs[] = {out[0], out[1]};
  int64_t granted = 0;
  for (bool met = true; met && granted < 300; ++granted) {
    EXPECT_EQ(hvd_init(&config), HVD_OK);
    DescribedCall call;
    EXPECT(call.Parse("1 0 0 0 1 1 1\nallgather.a 7 4 1 3\n1 0 0 0 1 1 1\nallgather.b 7 12 1 3"));
    std::string why;
    hvd_status failure = HVD_OK;
    {
      const ScarceMemory scarce(granted);
      const bool whole = border::Succeeds([&] { failure = call.Run(ins, outs, {}, &why); });
      EXPECT_EQ(whole, granted > 0);  // the first is for its own list of handles
      met = scarce.met();
    }
    // The promise is checked before the last wait, in which this thread may allocate as well.
    EXPECT(failure == HVD_INVALID_ARGUMENT || (met && failure == HVD_RESOURCE) || granted == 0);
    EXPECT(!why.empty() || granted == 0);
    EXPECT_EQ(hvd_shutdown(10), HVD_OK);
  }
  EXPECT(granted > 4 && granted < 300);
}

}  // namespace hvd::test::frameworks_described_call
