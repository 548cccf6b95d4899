// The stall inspector: who is missing is found through the tree, told once per warning time, and ends the job after the
// shutdown time.
#include "native/negotiation/cluster.h"
#include "negotiation/stall/stalled.h"

namespace hvd::test::negotiation_stall {

using namespace hvd::negotiation;
namespace {

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
    for (const auto& a : c.Of<LogLine>(r)) out += "[" + std::to_string(r) + "] " + a.text + "\n";
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
              "[0] 1 operation has waited for more than 60 s for ranks that have not submitted it; all members of a "
              "process set must submit the same operations. Look at what these ranks do:\n"
              "  ranks 4-5 (host4, host5) have not submitted: allreduce 'a' (60 s)\n");
    EXPECT(c.Of<LogLine>(0)[0].level == LogLevel::kWarning);
    c.Forget();
    Pass(&c, 61);  // again, once per warning time
    EXPECT_EQ(c.Count<LogLine>(0), 1);
    EXPECT(LogOf(c).find("allreduce 'a' (12") != std::string::npos);
    c.Forget();
    Submit(&c, {4, 5}, "a");
    Pass(&c, 1000);
    EXPECT_EQ(LogOf(c), "");
    EXPECT_EQ(c.Count<ExecuteBatch>(5), 1);
  }
}

TEST(negotiation_stall_is_reported_to_every_rank) {
  Cluster c = Make({-1, 0, 0, 1, 1, 2});
  Submit(&c, {5}, "a");
  Pass(&c, 62);
  for (int r = 0; r < c.size(); ++r) EXPECT_EQ(c.Count<Stalled>(r), 1);
}

TEST(negotiation_stall_is_seen_where_only_a_leaf_has_submitted) {
  Cluster c = Make({-1, 0, 1, 2, 2});
  Submit(&c, {4}, "deep");
  EXPECT_EQ(c.nodes[0].next_deadline(), kNever);  // the root knows nothing of it
  Pass(&c, 62);
  EXPECT(LogOf(c).find("ranks 0-3 (host0, host1, host2, host3) have not submitted: allreduce 'deep' (60 s)\n") !=
         std::string::npos);
}

TEST(negotiation_stall_of_a_stopped_rank) {
  Cluster c = Make({-1, 0, 0, 1, 1});
  Submit(&c, {0, 2, 3, 4}, "a");
  c.stopped[1] = true;  // an inner rank: what is below it cannot answer either
  Pass(&c, 62);
  EXPECT(LogOf(c).find("\n  rank 1 (host1) gives no answer (stopped?): allreduce 'a' (61 s)\n") != std::string::npos);
}

TEST(negotiation_stall_of_a_stopped_root_is_reported_from_below) {
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
  EXPECT(c.Count<Stalled>(2) >= 1 && c.Count<Stalled>(4) >= 1);
  c.Forget();
  c.stopped[0] = false;
  Submit(&c, {0, 1, 3}, "a");
  Pass(&c, 1000);
  EXPECT_EQ(LogOf(c), "");
  EXPECT_EQ(c.Count<ExecuteBatch>(4), 1);
}

TEST(negotiation_stall_a_living_root_is_not_called_stopped) {
  Cluster c = Make({-1, 0, 0, 1, 1});
  Submit(&c, {2, 4}, "a");
  for (int i = 0; i < 300; ++i) Pass(&c, 1);
  EXPECT(LogOf(c).find("stopped?") == std::string::npos);
  EXPECT(c.Count<LogLine>(0) >= 3);
}

TEST(negotiation_stall_shutdown_with_a_stopped_root) {
  Cluster c = Make(Cluster::Flat(2), 100);
  c.stopped[0] = true;
  Submit(&c, {1}, "a");
  Pass(&c, 99);
  EXPECT(!c.nodes[1].aborted());
  Pass(&c, 80);
  EXPECT(c.nodes[1].aborted());
  EXPECT(c.Of<Aborted>(1)[0].why.code() == Code::kTimeout);
}

TEST(negotiation_stall_tells_six_names) {
  Cluster c = Make(Cluster::Flat(2));
  for (int i = 0; i < 9; ++i) Submit(&c, {0}, "t" + std::to_string(i));
  Pass(&c, 62);
  EXPECT(LogOf(c).find("allreduce 't5' (60 s), ...\n") != std::string::npos);
  EXPECT(LogOf(c).find("'t6'") == std::string::npos);
  EXPECT(LogOf(c).find("9 operations have waited") != std::string::npos);
}

TEST(negotiation_stall_shutdown) {
  Cluster c = Make({-1, 0, 0, 1, 1}, 100);
  Submit(&c, {3}, "a");
  Pass(&c, 99);
  EXPECT(!c.nodes[0].aborted());
  Pass(&c, 3);
  for (int r = 0; r < 5; ++r) {
    EXPECT_EQ(c.Count<Aborted>(r), 1);
    EXPECT(c.Of<Aborted>(r)[0].why.code() == Code::kTimeout);
    EXPECT_EQ(c.Of<Aborted>(r)[0].why.message(),
              "allreduce 'a': ranks 0-2, 4 (host0, host1, host2, host4) did not submit it within 100 s "
              "(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS) after the first rank did");
  }
  const auto logs = c.Of<LogLine>(0);
  EXPECT_EQ(logs.size(), 2u);
  EXPECT(logs.back().level == LogLevel::kError);
  EXPECT(logs.back().text.find("\n  ranks 0-2, 4 (host0") != std::string::npos);
}

// The answers come by a coarser clock than the one that asked; the first report says 2 s, the limit ends the job at 4.
TEST(negotiation_stall_limit_is_kept_when_clocks_differ) {
  Cluster c(Cluster::Flat(2), [](NodeConfig* n) {
    n->stall_warning_s = 2;
    n->stall_shutdown_s = 4;
  });
  Submit(&c, {1}, "allreduce.grad/w");
  const double begin = c.now;
  for (int i = 0; i < 10 && !c.nodes[0].aborted(); ++i) {
    c.now = std::min(c.nodes[0].next_deadline(), c.nodes[1].next_deadline());
    for (Node& node : c.nodes) node.Tick(c.now);
    c.now -= 0.004;
    c.Run();
  }
  EXPECT(c.nodes[0].aborted());
  EXPECT(c.now <= begin + 4.4);
  EXPECT(c.Of<LogLine>(0)[0].text.find("for more than 2 s for") != std::string::npos);
  EXPECT(c.Of<LogLine>(0)[0].text.find("\n  rank 0 (host0) has not submitted: allreduce 'grad/w' (2") !=
         std::string::npos);
}

TEST(negotiation_stall_limit_is_kept_for_a_stopped_rank_or_root) {
  for (const int stopped : {0, 1}) {
    Cluster c(Cluster::Flat(3), [](NodeConfig* n) {
      n->stall_warning_s = 2.5;
      n->stall_shutdown_s = 4;
    });
    c.stopped[stopped] = true;
    Submit(&c, {2}, "a");
    Pass(&c, 3.9);
    EXPECT(!c.nodes[2].aborted());
    EXPECT(LogOf(c) != "");
    Pass(&c, 0.5);
    EXPECT(c.nodes[2].aborted());
  }
}

TEST(negotiation_stall_seconds_are_never_more_than_they_are) {
  EXPECT_EQ(SecondsText(0.25), "0.25 s");
  EXPECT_EQ(SecondsText(1.999), "1.9 s");
  EXPECT_EQ(SecondsText(2), "2 s");
  EXPECT_EQ(SecondsText(60), "60 s");
  EXPECT_EQ(SecondsText(61.9), "61 s");
  EXPECT_EQ(SecondsText(100), "100 s");
}

TEST(negotiation_stall_shutdown_below_warning_is_ignored) {
  Cluster c = Make(Cluster::Flat(2), 5);
  Submit(&c, {1}, "a");
  EXPECT_EQ(
      LogOf(c),
      "[0] HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (5) is below HOROVOD_STALL_CHECK_TIME_SECONDS (60) and is ignored. "
      "Lower that one too (--stall-check-warning-time-seconds).\n");
  Pass(&c, 500);
  EXPECT(!c.nodes[0].aborted());
}

TEST(negotiation_stall_check_can_be_off) {
  Cluster c(Cluster::Flat(2), [](NodeConfig* n) { n->stall_warning_s = 0; });
  Submit(&c, {1}, "a");
  for (int r = 0; r < 2; ++r) EXPECT_EQ(c.nodes[r].next_deadline(), kNever);
}

TEST(negotiation_stall_counts_joined_ranks_as_present) {
  Cluster c = Make(Cluster::Flat(3));
  c.nodes[1].Join(1, c.now);
  Submit(&c, {0}, "a");
  Pass(&c, 62);
  EXPECT(LogOf(c).find("  rank 2 (host2) has not submitted: allreduce 'a' (60 s)\n") != std::string::npos);
}

}  // namespace
}  // namespace hvd::test::negotiation_stall
