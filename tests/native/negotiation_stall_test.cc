// The stall inspector: who is missing is found through the tree, told once per warning time, and ends the job after the
// shutdown time.
#include <limits>

#include "negotiation/stall.h"
#include "negotiation_cluster.h"

namespace hvd {
namespace {

using test::Cluster;
using test::Tensor;
using Kind = Action::Kind;

constexpr double kNever = std::numeric_limits<double>::infinity();

Cluster Make(std::vector<int> parent, double shutdown_s = 0) {
  return Cluster(std::move(parent), [=](NodeConfig* n) {
    n->stall_warning_s = 60;
    n->stall_shutdown_s = shutdown_s;
  });
}
void Submit(Cluster* c, std::vector<int> ranks, const std::string& name) {
  const Request q = Tensor(name);
  for (int r : ranks) c->nodes[r].Submit(std::span(&q, 1), c->now);
  c->Run();
}
// Moves the clock to every deadline up to `seconds` from now.
void Pass(Cluster* c, double seconds) {
  const double end = c->now + seconds;
  for (;;) {
    double next = kNever;
    for (int r = 0; r < c->size(); ++r) {
      if (!c->stopped[r]) next = std::min(next, c->nodes[r].next_deadline());
    }
    if (next > end) break;
    c->now = std::max(c->now, next);
    c->TickAll();
  }
  c->now = end;
}
std::string LogOf(const Cluster& c) {
  std::string out;
  for (int r = 0; r < c.size(); ++r) {
    for (const Action& a : c.Of(r, Kind::kLog)) out += "[" + std::to_string(r) + "] " + a.name + "\n";
  }
  return out;
}

TEST(negotiation_stall_no_deadline_when_idle) {
  Cluster c = Make(Cluster::Chain(3));
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.nodes[r].next_deadline(), kNever);
  Submit(&c, {0, 1, 2}, "a");
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.nodes[r].next_deadline(), kNever);
}

TEST(negotiation_stall_names_the_missing) {
  for (bool cached : {false, true}) {
    Cluster c = Make({-1, 0, 0, 1, 1, 2});
    if (cached) Submit(&c, {0, 1, 2, 3, 4, 5}, "a");
    Submit(&c, {0, 1, 2, 3}, "a");
    Pass(&c, 59);
    EXPECT_EQ(LogOf(c), "");
    Pass(&c, 3);
    EXPECT_EQ(LogOf(c),
              "[0] 1 operation waits for ranks that have not submitted it for more than 60 s. All members must submit "
              "the same "
              "operations; look at what these ranks do:\n  ranks 4-5 (host4, host5): allreduce 'a' 60 s\n");
    EXPECT_EQ(c.Of(0, Kind::kLog)[0].level, 3);
    c.Forget();
    Pass(&c, 61);  // again, once per warning time
    EXPECT_EQ(c.Count(0, Kind::kLog), 1);
    EXPECT(LogOf(c).find("allreduce 'a' 12") != std::string::npos);
    c.Forget();
    Submit(&c, {4, 5}, "a");
    Pass(&c, 1000);
    EXPECT_EQ(LogOf(c), "");
    EXPECT_EQ(c.Count(5, Kind::kExecute), 1);
  }
}

TEST(negotiation_stall_is_seen_where_only_a_leaf_has_submitted) {
  Cluster c = Make({-1, 0, 1, 2, 2});
  Submit(&c, {4}, "deep");
  EXPECT_EQ(c.nodes[0].next_deadline(), kNever);  // the root knows nothing of it
  Pass(&c, 62);
  EXPECT(LogOf(c).find("ranks 0-3 (host0, host1, host2, host3): allreduce 'deep' 60 s\n") != std::string::npos);
}

TEST(negotiation_stall_of_a_stopped_rank) {
  Cluster c = Make({-1, 0, 0, 1, 1});
  Submit(&c, {0, 2, 3, 4}, "a");
  c.stopped[1] = true;  // an inner rank: what is below it cannot answer either
  Pass(&c, 62);
  EXPECT(LogOf(c).find("\n  rank 1 (host1): no answer (stopped?); allreduce 'a' 61 s\n") != std::string::npos);
}

TEST(negotiation_stall_of_a_stopped_root_is_told_from_below) {
  Cluster c = Make({-1, 0, 0, 1, 1});
  Submit(&c, {0, 1, 2, 3, 4}, "warm");
  Pass(&c, 1);
  c.stopped[0] = true;
  Submit(&c, {2, 4}, "a");
  Pass(&c, 60);
  EXPECT_EQ(LogOf(c), "");
  Pass(&c, 3);
  EXPECT_EQ(LogOf(c),
            "[2] allreduce 'a' waits for 62 s: rank 0 gives no answer (stopped?).\n"
            "[4] allreduce 'a' waits for 62 s: rank 1, or a rank between it and rank 0, gives no answer (stopped?).\n");
  c.Forget();
  c.stopped[0] = false;
  Submit(&c, {0, 1, 3}, "a");
  Pass(&c, 1000);
  EXPECT_EQ(LogOf(c), "");
  EXPECT_EQ(c.Count(4, Kind::kExecute), 1);
}

TEST(negotiation_stall_a_living_root_is_not_called_stopped) {
  Cluster c = Make({-1, 0, 0, 1, 1});
  Submit(&c, {2, 4}, "a");
  for (int i = 0; i < 300; ++i) Pass(&c, 1);
  EXPECT(LogOf(c).find("stopped?") == std::string::npos);
  EXPECT(c.Count(0, Kind::kLog) >= 3);
}

TEST(negotiation_stall_shutdown_with_a_stopped_root) {
  Cluster c = Make(Cluster::Flat(2), 100);
  c.stopped[0] = true;
  Submit(&c, {1}, "a");
  Pass(&c, 99);
  EXPECT(!c.nodes[1].aborted());
  Pass(&c, 80);
  EXPECT(c.nodes[1].aborted());
  EXPECT(c.Of(1, Kind::kAbort)[0].status.code() == Code::kTimeout);
}

TEST(negotiation_stall_tells_six_names) {
  Cluster c = Make(Cluster::Flat(2));
  for (int i = 0; i < 9; ++i) Submit(&c, {0}, "t" + std::to_string(i));
  Pass(&c, 62);
  EXPECT(LogOf(c).find("allreduce 't5' 60 s, ...\n") != std::string::npos);
  EXPECT(LogOf(c).find("'t6'") == std::string::npos);
  EXPECT(LogOf(c).find("9 operations wait") != std::string::npos);
}

TEST(negotiation_stall_shutdown) {
  Cluster c = Make({-1, 0, 0, 1, 1}, 100);
  Submit(&c, {3}, "a");
  Pass(&c, 99);
  EXPECT(!c.nodes[0].aborted());
  Pass(&c, 3);
  for (int r = 0; r < 5; ++r) {
    EXPECT_EQ(c.Count(r, Kind::kAbort), 1);
    EXPECT(c.Of(r, Kind::kAbort)[0].status.code() == Code::kTimeout);
    EXPECT_EQ(c.Of(r, Kind::kAbort)[0].status.message(),
              "allreduce 'a': ranks 0-2, 4 (host0, host1, host2, host4) did not submit it within 100 s "
              "(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS) after the first rank did");
  }
  const auto logs = c.Of(0, Kind::kLog);
  EXPECT_EQ(logs.size(), 2u);
  EXPECT_EQ(logs.back().level, 4);
  EXPECT(logs.back().name.find("ranks 0-2, 4!") != std::string::npos);
}

TEST(negotiation_stall_shutdown_below_warning_is_ignored) {
  Cluster c = Make(Cluster::Flat(2), 5);
  Submit(&c, {1}, "a");
  EXPECT_EQ(
      LogOf(c),
      "[0] HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (5) is below HOROVOD_STALL_CHECK_TIME_SECONDS (60) and is ignored.\n");
  Pass(&c, 500);
  EXPECT(!c.nodes[0].aborted());
}

TEST(negotiation_stall_check_can_be_off) {
  Cluster c(Cluster::Flat(2), [](NodeConfig* n) { n->stall_check = false; });
  Submit(&c, {1}, "a");
  for (int r = 0; r < 2; ++r) EXPECT_EQ(c.nodes[r].next_deadline(), kNever);
}

TEST(negotiation_stall_counts_joined_ranks_as_present) {
  Cluster c = Make(Cluster::Flat(3));
  c.nodes[1].Join(1, c.now);
  Submit(&c, {0}, "a");
  Pass(&c, 62);
  EXPECT(LogOf(c).find("  rank 2 (host2): allreduce 'a' 60 s\n") != std::string::npos);
}

}  // namespace
}  // namespace hvd
