// What a rank tells when a job hangs: operations that wait, the last that have ended, and who asks.
#include <poll.h>
#include <sys/wait.h>

#include <csignal>

#include "engine/record/dump_call.h"
#include "engine/record/finished.h"
#include "native/engine/world.h"

namespace hvd::test::engine_dump {

using namespace hvd::engine;
namespace {

// Everything that has asked since.
uint64_t Calls() {
  uint64_t count = 0;
  return read(DumpCall::Descriptor(), &count, sizeof count) == sizeof count ? count : 0;
}
bool CalledWithin(double seconds) {
  pollfd fd = {DumpCall::Descriptor(), POLLIN, 0};
  return poll(&fd, 1, static_cast<int>(seconds * 1e3)) == 1;
}

TEST(engine_finished_keeps_the_last) {
  Finished finished;
  EXPECT(finished.Last().empty());
  for (int i = 1; i <= 100; ++i) finished.Note(OpType::kBroadcast, i % 3, "b" + std::to_string(i));
  const std::vector<Finished::One> last = finished.Last();
  EXPECT_EQ(last.size(), Finished::kKept);
  EXPECT_EQ(last.back().number, 100u);
  EXPECT_EQ(last.back().name, "b100");
  EXPECT_EQ(last.front().name, "b69");
  EXPECT_EQ(last.front().process_set, 0);
  finished.Note(OpType::kAllreduce, 0, std::string(10000, 'x'));
  EXPECT_EQ(finished.Last().back().name.size(), 200u);
}

TEST(engine_dump_tells_what_waits_and_what_has_ended) {
  EngineWorld world(2);
  const float in[6] = {};
  float out[2][6];
  test::RanksAsThreads(2, [&](int r) {
    EXPECT_OK(RunOp(world[r], Op(HVD_ALLREDUCE, HVD_FLOAT32, "allreduce.first", {6}, in, out[r]).op));
  });
  const Op w(HVD_ALLREDUCE, HVD_FLOAT32, "allreduce.w", {2, 3}, in, out[0]);
  std::shared_ptr<Completion> done;
  EXPECT_OK(world[0].Submit(&w.op, 1, 0, &done));
  const std::string waits = world[0].DumpJson(), other = world[1].DumpJson();
  EXPECT(waits.find("\"pending\":[{\"operation\":\"allreduce\",\"name\":\"allreduce.w\",\"what\":\"allreduce 'w'\","
                    "\"process_set\":0,\"dtype\":\"float32\",\"shape\":[2,3],\"seconds\":") != std::string::npos);
  EXPECT(other.find("\"pending\":[],\"untold\":0,\"finished\":[{\"number\":1,\"operation\":\"allreduce\",\"name\":"
                    "\"allreduce.first\",") != std::string::npos);
  EXPECT(other.find("\"process_sets\":{\"0\":[0,1]}") != std::string::npos);
  EXPECT_OK(RunOp(world[1], Op(HVD_ALLREDUCE, HVD_FLOAT32, "allreduce.w", {2, 3}, in, out[1]).op));
  EXPECT(world[0].Wait(*done, 10));
  EXPECT(world[0].DumpJson().find("\"pending\":[]") != std::string::npos);
  EXPECT(world[0].DumpJson().find("\"number\":2,\"operation\":\"allreduce\",\"name\":\"allreduce.w\"") !=
         std::string::npos);
}

TEST(engine_a_stall_asks_for_dumps) {
  EngineWorld::Options options;
  options.stall_warning_s = 0.1;
  EXPECT(DumpCall::Descriptor() >= 0);
  Calls();
  EngineWorld world(2, options);
  const float in = 1;
  float out[2];
  const Op w(HVD_ALLREDUCE, HVD_FLOAT32, "w", {1}, &in, &out[0]);
  std::shared_ptr<Completion> done;
  EXPECT_OK(world[0].Submit(&w.op, 1, 0, &done));
  EXPECT(CalledWithin(10));
  EXPECT(Calls() >= uint64_t{1} << 32);
  EXPECT_OK(RunOp(world[1], Op(HVD_ALLREDUCE, HVD_FLOAT32, "w", {1}, &in, &out[1]).op));
  EXPECT(world[0].Wait(*done, 10));
}

TEST(engine_a_signal_asks_for_a_dump) {
  const int fd = DumpCall::Descriptor();
  EXPECT(fd >= 0);
  EXPECT_EQ(DumpCall::Descriptor(), fd);
  Calls();
  EXPECT_OK(DumpCall::OnSignal(SIGUSR2));
  EXPECT_OK(DumpCall::OnSignal(SIGUSR2));  // again, by the next session
  raise(SIGUSR2);
  EXPECT_EQ(Calls(), 1u);
  if (const pid_t child = fork(); child == 0) {  // it inherits handler and descriptor
    raise(SIGUSR2);
    _exit(0);
  } else {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(Calls(), 0u);
  signal(SIGUSR2, SIG_IGN);
  EXPECT(DumpCall::OnSignal(SIGUSR2).code() == Code::kUnsupported);
  signal(SIGUSR2, SIG_DFL);
  EXPECT(DumpCall::OnSignal(SIGKILL).code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace hvd::test::engine_dump
