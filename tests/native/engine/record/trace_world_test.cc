// One trace of all ranks of a job: every rank is in it, on one host and over several, whoever ends how.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "native/engine/world.h"

namespace hvd::test::engine_trace_world {
namespace {

class TracePath {
 public:
  TracePath() {
    const int made = mkstemp(path_);
    EXPECT(made >= 0);
    close(made);
  }
  ~TracePath() { unlink(path_); }
  operator std::string() const { return path_; }
  std::string Read() const {
    std::stringstream s;
    s << std::ifstream(path_).rdbuf();
    return s.str();
  }

 private:
  char path_[32] = "/tmp/hvd_world_XXXXXX";
};

size_t CountIn(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

void Steps(EngineWorld& world, int n) {
  RanksAsThreads(world.size(), [&](int r) {
    std::vector<float> in(64, 1), out(64);
    for (int i = 0; i < n; ++i) {
      Op op(HVD_ALLREDUCE, HVD_FLOAT32, "w" + std::to_string(i % 4), {64}, in.data(), out.data());
      EXPECT_OK(RunOp(world[r], op.op));
    }
  });
}

// Slices of this name that a rank has.
size_t Slices(const std::string& text, int rank, const std::string& name) {
  std::istringstream lines(text);
  size_t n = 0;
  const std::string head = ",{\"ph\":\"X\",\"pid\":" + std::to_string(rank) + ",";
  for (std::string line; std::getline(lines, line);)
    n += line.rfind(head, 0) == 0 && line.find("\"name\":\"" + name + "\"") != std::string::npos;
  return n;
}

void ExpectAll(const std::string& text, int ranks, size_t steps) {
  EXPECT(text.size() > 4 && text[0] == '[' && text.compare(text.size() - 2, 2, "]\n") == 0);
  for (int r = 0; r < ranks; ++r) {
    EXPECT_EQ(CountIn(text, "\"name\":\"rank " + std::to_string(r) + " (here)\""), 1u);
    EXPECT_EQ(Slices(text, r, "ALLREDUCE"), steps);
    EXPECT(Slices(text, r, "NEGOTIATE_ALLREDUCE") >= steps);
  }
  EXPECT_EQ(CountIn(text, "\"ph\":\"s\""), ranks * steps);
  EXPECT_EQ(CountIn(text, "\"ph\":\"f\""), ranks * steps);
}

// Each host number is one host; the ranks before the first of another host share rank 0's clock.
void TraceOver(std::vector<int> host_of_rank) {
  EngineWorld::Options options;
  options.host_of_rank = host_of_rank;
  const int n = static_cast<int>(host_of_rank.size());
  EngineWorld world(n, options);
  for (int round = 0; round < 2; ++round) {  // a second trace holds nothing of the first
    const TracePath path;
    EXPECT_OK(world[0].StartTimeline(path, false));
    if (n > 1) EXPECT(world[1].StartTimeline(path, false).code() == Code::kInvalidArgument);
    Steps(world, 1);  // ranks that learn of it too late have no part in this one
    usleep(100'000);
    Steps(world, 30);
    EXPECT_OK(world[0].StopTimeline());
    const std::string text = path.Read();
    EXPECT_EQ(CountIn(text, "events dropped"), 0u);
    for (int r = 0; r < n; ++r) {
      EXPECT(Slices(text, r, "ALLREDUCE") >= 30 && Slices(text, r, "NEGOTIATE_ALLREDUCE") >= 30);
      EXPECT_EQ(CountIn(text, "\"name\":\"rank " + std::to_string(r) + " (here)\""), 1u);
    }
    EXPECT_EQ(CountIn(text, "\"ph\":\"s\""), CountIn(text, "\"ph\":\"f\""));
    EXPECT(CountIn(text, "\"ph\":\"s\"") >= static_cast<size_t>(n) * 30);
    const int others = static_cast<int>(std::count(host_of_rank.begin(), host_of_rank.end(), host_of_rank[0]));
    EXPECT(CountIn(text, "\"offset_us\":0,\"error_us\":0}") >= static_cast<size_t>(others));
    EXPECT_EQ(CountIn(text, "\"error_us\":null"), 0u);
    Steps(world, 5);  // not in it
    EXPECT(path.Read() == text);
  }
}

TEST(trace_of_all_ranks_of_a_host) { TraceOver({0, 0, 0, 0}); }
TEST(trace_of_all_ranks_of_several_hosts) { TraceOver({0, 0, 1, 1, 2}); }
TEST(trace_of_a_rank_alone) { TraceOver({0}); }

TEST(trace_holds_what_ranks_had_to_say_that_leave_before_its_end) {
  const TracePath path;
  {
    EngineWorld world(3);
    EXPECT_OK(world[0].StartTimeline(path, false));
    usleep(100'000);
    Steps(world, 10);
    world.Leave(2);
    world.Leave(1);
    const double begin = engine::NowS();
    world.Leave(0);  // ends the trace, and has nobody to wait for
    EXPECT(engine::NowS() - begin < 1.5);
  }
  ExpectAll(path.Read(), 3, 10);
}

// The first rank of a host carries what the others have to say.
TEST(trace_holds_what_comes_through_a_rank_that_leaves_first) {
  for (int round = 0; round < (kSanitizer ? 3 : 10); ++round) {
    const TracePath path;
    {
      EngineWorld::Options options;
      options.host_of_rank = {0, 0, 1, 1};
      EngineWorld world(4, options);
      EXPECT_OK(world[0].StartTimeline(path, false));
      usleep(100'000);
      Steps(world, 10);
      RanksAsThreads(4, [&](int r) {
        if (r == 3) usleep(20'000);
        world.Leave(r);
      });
    }
    ExpectAll(path.Read(), 4, 10);
  }
}

TEST(trace_of_a_job_that_loses_a_rank_is_whole) {
  const TracePath path;
  EngineWorld world(3);
  EXPECT_OK(world[0].StartTimeline(path, false));
  usleep(100'000);
  Steps(world, 10);
  usleep(300'000);
  world.Die(2);
  std::vector<float> in(64, 1), out(64);
  Op op(HVD_ALLREDUCE, HVD_FLOAT32, "after", {64}, in.data(), out.data());
  EXPECT(!RunOp(world[0], op.op).ok());
  (void)world[0].StopTimeline();
  const std::string text = path.Read();
  EXPECT(text.compare(text.size() - 2, 2, "]\n") == 0);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(Slices(text, r, "ALLREDUCE"), 10u);
}

}  // namespace
}  // namespace hvd::test::engine_trace_world
