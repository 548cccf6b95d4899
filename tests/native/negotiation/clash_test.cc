// Operations under one name of the user's that wait for one another: they fail at the stall limit, everywhere and not
// before, and what comes after them is as if nothing had been.
#include "native/negotiation/cluster.h"
#include "negotiation/values/signature.h"

namespace hvd::test::negotiation_clash {

using namespace hvd::negotiation;
namespace {

Request Named(OpType type, const std::string& name) {
  return Tensor(std::string(OpText(type)) + "." + name, {4}, type);
}
std::vector<Request> Group(const std::string& name, int n) {
  std::vector<std::string> names;
  for (int i = 1; i <= n; ++i)
    names.push_back("allreduce." + name + "_" + std::to_string(i) + "of" + std::to_string(n));
  std::vector<Request> group;
  for (const std::string& each : names) {
    Request q = Tensor(each);
    q.group_hash = GroupHash(names);
    q.group_size = n;
    q.group_index = static_cast<int32_t>(group.size());
    group.push_back(std::move(q));
  }
  return group;
}
void Submit(Cluster* c, const std::vector<int>& ranks, const Request& q) {
  for (int r : ranks) c->nodes[r].Submit(std::span(&q, 1), c->now);
}
// Ticks at every second.
void Pass(Cluster* c, int seconds) {
  c->Run();
  for (int i = 0; i < seconds; ++i) {
    c->now += 1;
    c->TickAll();
  }
}
void ExpectAllRun(Cluster* c, const Request& q) {
  c->Forget();
  for (Node& node : c->nodes) node.Submit(std::span(&q, 1), c->now);
  c->Run();
  for (int r = 0; r < c->size(); ++r) EXPECT_EQ(c->Executed(r), q.name);
}

}  // namespace

TEST(negotiation_clash_names_of_the_user) {
  EXPECT_EQ(UserName(OpType::kAllreduce, "allreduce.w", 0), "w");
  EXPECT_EQ(UserName(OpType::kAllreduce, "allreduce.g_2of3", 3), "g");
  EXPECT_EQ(UserName(OpType::kAllreduce, "allreduce.g_2of3", 0), "g_2of3");
  EXPECT_EQ(UserName(OpType::kAllreduce, "allreduce.2of3", 3), "2of3");
  EXPECT_EQ(UserName(OpType::kAllreduce, "allreduce.noname.7", 0), "");
  EXPECT_EQ(UserName(OpType::kAllreduce, "w", 0), "");
}

TEST(negotiation_clash_of_two_operations_fails_at_the_limit) {
  for (const bool cached : {false, true}) {
    for (const std::vector<int>& tree : {std::vector<int>{-1, 0, 0}, {-1, 0, 1}, {-1, 0, 0, 1, 1}}) {
      Cluster c(tree);
      const Request reduce = Named(OpType::kAllreduce, "w"), send = Named(OpType::kBroadcast, "w");
      const int last = c.size() - 1;
      std::vector<int> others;
      for (int r = 0; r < last; ++r) others.push_back(r);
      if (cached) {
        for (const Request& q : {reduce, send}) ExpectAllRun(&c, q);
        c.Forget();
      }
      Submit(&c, others, reduce);
      Submit(&c, {last}, send);
      Pass(&c, 59);
      for (int r = 0; r <= last; ++r) EXPECT_EQ(c.Count<EntryFailed>(r), 0);
      Pass(&c, 4);
      for (int r = 0; r <= last; ++r) {
        EXPECT_EQ(c.Count<EntryFailed>(r), 1);
        EXPECT_EQ(c.FailText(r), "'w': ranks 0-" + std::to_string(last - 1) + " called allreduce, rank " +
                                     std::to_string(last) +
                                     " called broadcast, and each waits for the others; all ranks must call the same "
                                     "operation with as many tensors under one name.");
        EXPECT(c.Of<EntryFailed>(r)[0].why.code() == Code::kMismatch);
      }
      EXPECT(c.Count<LogLine>(0) >= 1);  // and it was reported
      ExpectAllRun(&c, reduce);
      ExpectAllRun(&c, send);
    }
  }
}

TEST(negotiation_clash_of_groups_of_two_sizes) {
  Cluster c({-1, 0, 0, 1, 1});
  for (int r = 0; r < 5; ++r) c.nodes[r].Submit(Group("g", r == 3 ? 3 : 2), c.now);
  Pass(&c, 63);
  for (int r = 0; r < 5; ++r) EXPECT_EQ(c.Count<EntryFailed>(r), r == 3 ? 3 : 2);
  EXPECT(c.FailText(4).find("ranks 0-2, 4 called allreduce with a group of 2") != std::string::npos);
  EXPECT(c.FailText(4).find("rank 3 called allreduce with a group of 3") != std::string::npos);
  c.Forget();
  for (Node& node : c.nodes) node.Submit(Group("g", 2), c.now);
  c.Run();
  for (int r = 0; r < 5; ++r) EXPECT_EQ(c.Executed(r), "allreduce.g_1of2+allreduce.g_2of2");
}

// Threads may submit in any order: as long as both come everywhere before the limit, or some rank has both, nothing
// fails.
TEST(negotiation_clash_is_none_when_the_order_differs) {
  Cluster c(Cluster::Flat(3));
  const Request reduce = Named(OpType::kAllreduce, "w"), send = Named(OpType::kBroadcast, "w");
  Submit(&c, {0, 1}, reduce);
  Submit(&c, {2}, send);
  Pass(&c, 55);
  Submit(&c, {0, 1}, send);
  Submit(&c, {2}, reduce);
  Pass(&c, 200);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(c.Count<EntryFailed>(r), 0);
    EXPECT_EQ(c.Count<ExecuteBatch>(r), 2);
  }
  c.Forget();
  Submit(&c, {0, 1}, reduce);
  Submit(&c, {1, 2}, send);  // rank 1 has both: the others may be late
  Pass(&c, 200);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Count<EntryFailed>(r), 0);
}

TEST(negotiation_clash_is_none_between_unnamed_operations) {
  Cluster c(Cluster::Flat(2));
  Submit(&c, {0}, Named(OpType::kAllreduce, "noname.0"));
  Submit(&c, {1}, Named(OpType::kBroadcast, "noname.0"));
  Pass(&c, 130);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(c.Count<EntryFailed>(r), 0);
  EXPECT_EQ(c.Count<LogLine>(0), 2);
}

// What was on its way when its name failed does not count: its sender has failed, too.
TEST(negotiation_clash_a_submission_on_its_way_is_void) {
  Cluster c(Cluster::Flat(3));
  const Request reduce = Named(OpType::kAllreduce, "w"), send = Named(OpType::kBroadcast, "w");
  Submit(&c, {0}, reduce);
  Submit(&c, {1}, send);
  c.Run();
  c.now += 61;
  for (Node& node : c.nodes) node.Tick(c.now);
  while (c.nodes[0].HasOutgoing() || !c.links[{0, 2}].empty()) {  // the question, and rank 2's answer
    c.Collect(0);
    while (c.Deliver(0, 2)) continue;
    while (c.Deliver(0, 1)) continue;
  }
  c.Collect(1);
  c.Collect(2);
  Submit(&c, {2}, reduce);  // comes after the answer, before the failure
  c.Collect(2);
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Count<EntryFailed>(r), 1);
  ExpectAllRun(&c, reduce);
  ExpectAllRun(&c, send);
}

}  // namespace hvd::test::negotiation_clash
