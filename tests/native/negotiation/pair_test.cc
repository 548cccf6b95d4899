// Sends: two members of a process set agree, and nobody else is asked.
#include "negotiation/values/pair.h"

#include "native/negotiation/cluster.h"
#include "negotiation/stall/stalled.h"
#include "negotiation/values/op_text.h"

namespace hvd::test::negotiation_pair {

using namespace hvd::negotiation;
namespace {

// What both ranks ask for.
Request Send(int from, int to, std::vector<int64_t> shape = {4}, int set = 0) {
  Request q = Tensor(PairName({from, to}), std::move(shape), OpType::kSend);
  q.process_set = set;
  return q;
}
void Submit(Cluster* c, int rank, const Request& q) { c->nodes[rank].Submit(std::span(&q, 1), c->now); }
int Executes(const Cluster& c, int rank) { return c.Count<ExecuteBatch>(rank); }

std::string LogOf(const Cluster& c) {
  std::string out;
  for (int r = 0; r < c.size(); ++r) {
    for (const auto& a : c.Of<LogLine>(r)) out += a.text + "\n";
  }
  return out;
}
void Pass(Cluster* c, double seconds) {
  const double end = c->now + seconds;
  while (c->now < end) {
    double next = end;
    for (const Node& node : c->nodes) next = std::min(next, node.next_deadline());
    c->now = std::max(c->now, next);
    c->TickAll();
  }
}

}  // namespace

TEST(negotiation_pair_names) {
  EXPECT_EQ(PairName({3, 12}), "send 3->12");
  EXPECT(PairOf("send 3->12").has_value());
  EXPECT_EQ(PairOf("send 3->12")->from, 3);
  EXPECT_EQ(PairOf("send 3->12")->to, 12);
  for (const char* other : {"", "send", "send 3", "send 3->", "send ->12", "send 3->12 ", "send 3->12 #1", "recv 3->12",
                            "send -3->12", "send 3->99999999999", "sends 3->12", "send 3->12x", "send 3->12 #0"})
    EXPECT(!PairOf(other).has_value());
  const std::string own = OwnName(OpType::kRecv, {0, 1}, 7, "my gradients");
  EXPECT_EQ(own, "recv 0->1 #7 my gradients");
  EXPECT_EQ(SharedPart(own), "0->1 #7");
  EXPECT_EQ(RanksOf(own)->to, 1);
  EXPECT(!RanksOf("send 0->1").has_value());
  EXPECT_EQ(Subject(OpType::kRecv, own, 2), "recv #7 from rank 0 to rank 1 ('my gradients') (process set 2)");
  EXPECT_EQ(Subject(OpType::kSend, "send 0->1", 0), "send from rank 0 to rank 1");
  EXPECT_EQ(Subject(OpType::kSend, "acts", 0), "send 'acts'");
}

TEST(negotiation_pair_needs_two_ranks_alone) {
  for (const auto& parent : {Cluster::Flat(5), Cluster::Chain(5), std::vector<int>{-1, 0, 0, 1, 1}}) {
    for (int from = 0; from < 5; ++from) {
      for (int to = 0; to < 5; ++to) {
        if (from == to) continue;
        Cluster c(parent);
        for (int step = 1; step <= 3; ++step) {  // the first in full, the others by an id
          Submit(&c, from, Send(from, to));
          c.Run();
          EXPECT_EQ(Executes(c, from), step - 1);
          Submit(&c, to, Send(from, to));
          c.Run();
          for (int r = 0; r < 5; ++r) EXPECT_EQ(Executes(c, r), r == from || r == to ? step : 0);
        }
      }
    }
  }
}

TEST(negotiation_pair_holds_up_no_collective) {
  Cluster c(Cluster::Chain(4));
  Submit(&c, 2, Send(2, 3));
  Submit(&c, 1, Send(3, 1));
  for (int r = 0; r < 4; ++r) Submit(&c, r, Tensor("a"));
  c.Run();
  for (int r = 0; r < 4; ++r) EXPECT_EQ(c.Executed(r), "a");
  Submit(&c, 3, Send(3, 1));
  Submit(&c, 3, Send(2, 3));
  c.Run();
  EXPECT_EQ(c.Executed(0), "a");
  EXPECT_EQ(c.Executed(1), "a, send 3->1");
  EXPECT_EQ(c.Executed(2), "a, send 2->3");
  EXPECT_EQ(Executes(c, 3), 3);
}

// Never together in a batch: another pair has other members.
TEST(negotiation_pair_is_never_fused) {
  Cluster c(Cluster::Flat(3));
  for (const Request& q : {Send(1, 2), Send(2, 1)}) {
    Submit(&c, 1, q);
    Submit(&c, 2, q);
  }
  c.Run();
  EXPECT_EQ(c.Executed(1), "send 1->2, send 2->1");
  EXPECT_EQ(c.Executed(2), "send 1->2, send 2->1");
}

TEST(negotiation_pair_mismatch_fails_both) {
  for (const bool cached : {false, true}) {
    Cluster c(Cluster::Flat(3));
    if (cached) {
      Submit(&c, 1, Send(1, 2));
      Submit(&c, 2, Send(1, 2));
      c.Run();
    }
    Request other = Send(1, 2, {5});
    other.dtype = DType::kFloat64;
    Submit(&c, 1, Send(1, 2));
    Submit(&c, 2, other);
    c.Run();
    const std::string text =
        "send from rank 1 to rank 2: rank 1 sent float32 [4], rank 2 receives float64 [5]; both must pass the same "
        "dtype and shape.";
    EXPECT_EQ(c.FailText(1), text);
    EXPECT_EQ(c.FailText(2), text);
    EXPECT_EQ(c.FailText(0), "");
    c.Forget();
    Submit(&c, 1, other);  // the pair goes on
    Submit(&c, 2, other);
    c.Run();
    EXPECT_EQ(Executes(c, 1), 1);
    EXPECT_EQ(Executes(c, 2), 1);
  }
}

TEST(negotiation_pair_refusal_reaches_the_other) {
  Cluster c(Cluster::Chain(3));
  const Request q = Send(2, 0);
  c.nodes[2].Refuse(std::span(&q, 1), "no such dtype", c.now);
  Submit(&c, 0, q);
  c.Run();
  EXPECT_EQ(c.FailText(0), "send from rank 2 to rank 0: rank 2 refused it: no such dtype");
  EXPECT_EQ(c.FailText(1), "");
}

TEST(negotiation_pair_in_a_process_set) {
  Cluster c(Cluster::Flat(4));
  for (int r = 0; r < 4; ++r) c.nodes[r].AddSet({1, 3}, 9, c.now);
  c.Run();
  Submit(&c, 1, Send(1, 3, {4}, 1));
  Submit(&c, 1, Send(1, 3));  // the same two in another set
  c.Run();
  Submit(&c, 3, Send(1, 3));
  c.Run();
  EXPECT_EQ(Executes(c, 1), 1);
  EXPECT_EQ(c.Of<ExecuteBatch>(1)[0].process_set, 0);
  Submit(&c, 3, Send(1, 3, {4}, 1));
  c.Run();
  EXPECT_EQ(c.Of<ExecuteBatch>(3).back().process_set, 1);
}

TEST(negotiation_pair_ends_with_its_set) {
  Cluster c(Cluster::Flat(3));
  for (int r = 0; r < 3; ++r) c.nodes[r].AddSet({1, 2}, 9, c.now);
  c.Run();
  Submit(&c, 1, Send(1, 2, {4}, 1));
  for (int r = 0; r < 3; ++r) c.nodes[r].RemoveSet(1, 9, c.now);
  c.Run();
  EXPECT(c.FailText(1).find("process set 1 was removed") != std::string::npos);
}

// A rank that has joined sends nothing, but that ends no send: it may when all have joined.
TEST(negotiation_pair_waits_for_a_rank_that_has_joined) {
  for (const bool cached : {false, true}) {
    Cluster c(Cluster::Chain(3));
    if (cached) {
      Submit(&c, 0, Send(0, 2));
      Submit(&c, 2, Send(0, 2));
      c.Run();
      c.Forget();
    }
    Submit(&c, 0, Send(0, 2));
    c.nodes[2].Join(11, c.now);
    c.nodes[1].Join(11, c.now);
    c.Run();
    EXPECT_EQ(Executes(c, 0), 0);
    EXPECT_EQ(c.FailText(0), "");
    c.nodes[0].Join(11, c.now);
    c.Run();
    EXPECT_EQ(c.Count<AllJoined>(0), 1);
    Submit(&c, 2, Send(0, 2));
    c.Run();
    EXPECT_EQ(Executes(c, 0), 1);
    EXPECT_EQ(Executes(c, 2), 1);
  }
}

TEST(negotiation_pair_stall_names_both) {
  for (const bool cached : {false, true}) {
    Cluster c(Cluster::Chain(3), [](NodeConfig* n) { n->stall_warning_s = 60; });
    if (cached) {
      for (const Request& q : {Send(1, 2), Send(2, 1)}) {
        Submit(&c, 1, q);
        Submit(&c, 2, q);
      }
      c.Run();
      c.Forget();
    }
    Submit(&c, 1, Send(1, 2));
    Submit(&c, 2, Send(2, 1));
    c.Run();
    Pass(&c, 62);
    const std::string log = LogOf(c);
    for (const char* part :
         {"2 operations have waited for more than 60 s for ranks that have not submitted them; a send and its",
          "recv wait for each other, so that two ranks which both send first wait for ever. Look at what these",
          "  rank 1 (host1) has not submitted: recv from rank 2 (60 s)\n",
          "  rank 2 (host2) has not submitted: recv from rank 1 (60 s)\n"})
      EXPECT(log.find(part) != std::string::npos);
  }
}

TEST(negotiation_pair_stall_ends_the_job) {
  Cluster c(Cluster::Flat(3), [](NodeConfig* n) {
    n->stall_warning_s = 60;
    n->stall_shutdown_s = 100;
  });
  Submit(&c, 2, Send(1, 2));
  c.Run();
  Pass(&c, 120);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(c.Count<Aborted>(r), 1);
    EXPECT(c.Of<Aborted>(r)[0].why.message().find("send from rank 1 to rank 2: rank 1 (host1) did not submit it") !=
           std::string::npos);
  }
}

TEST(negotiation_pair_that_cannot_be_is_refused) {
  // What node 1 would pass up of a node that does not check: a send of ranks that are no members, or are one.
  for (const std::string& name : {PairName({1, 7}), PairName({1, 1})}) {
    Cluster c(Cluster::Flat(3));
    Request q = Tensor(name, {4}, OpType::kSend);
    Submit(&c, 1, q);
    c.Collect(1);
    std::deque<Bytes>& link = c.links[{1, 0}];
    if (link.empty()) continue;  // it was not even sent
    EXPECT(!c.nodes[0].Receive(1, link.front(), c.now).ok());
  }
  // A name of a send for something else.
  Cluster c(Cluster::Flat(3));
  Submit(&c, 1, Tensor(PairName({1, 2})));
  c.Collect(1);
  std::deque<Bytes>& link = c.links[{1, 0}];
  EXPECT(link.empty() || !c.nodes[0].Receive(1, link.front(), c.now).ok());
}

}  // namespace hvd::test::negotiation_pair
