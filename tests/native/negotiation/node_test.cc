// The negotiation protocol on small trees: agreement, order, caching, mismatches, refusals, groups, sets, joins,
// goodbyes, losses.
#include <cmath>

#include "native/negotiation/cluster.h"

namespace hvd::test::negotiation_node {

using namespace hvd::negotiation;
namespace {

void Submit(Cluster* c, int rank, const Request& r) { c->nodes[rank].Submit(std::span(&r, 1), c->now); }
void SubmitAll(Cluster* c, const Request& r) {
  for (int rank = 0; rank < c->size(); ++rank) Submit(c, rank, r);
}
void ExpectEverywhere(const Cluster& c, const std::string& executed) {
  for (int r = 0; r < c.size(); ++r) EXPECT_EQ(c.Executed(r), executed);
}
std::string LastFailure(Node* node) { return std::get<EntryFailed>(node->actions().back()).why.message(); }
void ExpectFailEverywhere(const Cluster& c, Code code, const std::string& text) {
  for (int r = 0; r < c.size(); ++r) {
    EXPECT_EQ(c.FailText(r), text);
    const auto fails = c.Of<EntryFailed>(r);
    EXPECT(!fails.empty() && fails.back().why.code() == code);
  }
}

TEST(negotiation_alone) {
  Cluster c({-1});
  Submit(&c, 0, Tensor("a"));
  EXPECT(c.nodes[0].wants_flush());
  c.Run();
  ExpectEverywhere(c, "a");
  EXPECT_EQ(c.Of<ExecuteBatch>(0)[0].entries[0].ticket, 1u);
}

TEST(negotiation_runs_when_all_have_submitted) {
  Cluster c(Cluster::Chain(3));
  Submit(&c, 2, Tensor("a"));
  Submit(&c, 0, Tensor("a"));
  c.Run();
  ExpectEverywhere(c, "");
  Submit(&c, 1, Tensor("a"));
  c.Run();
  ExpectEverywhere(c, "a");
}

TEST(negotiation_cached_mark_is_small) {
  Cluster c(Cluster::Flat(2));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 1000; ++i) SubmitAll(&c, Tensor("a.rather.long.name.of.a.parameter." + std::to_string(i)));
    c.bytes = 0;
    c.Run();
  }
  EXPECT(c.bytes <= 2 * 4000);  // a frame of marks up, a batch down
  c.Forget();
  c.frames = c.bytes = 0;
  Submit(&c, 1, Tensor("a.rather.long.name.of.a.parameter.5"));
  c.Run();
  EXPECT_EQ(c.frames, 1);
  EXPECT(c.bytes <= 18 + 8);
}

TEST(negotiation_order_is_the_roots) {
  Cluster c(Cluster::Flat(3), [](NodeConfig* n) { n->fusion_threshold_bytes = 0; });
  for (int r = 0; r < 3; ++r) {
    Submit(&c, r, Tensor(r == 1 ? "b" : "a"));
    Submit(&c, r, Tensor(r == 1 ? "a" : "b"));
  }
  c.Run();
  EXPECT(c.Executed(0) == "a, b" || c.Executed(0) == "b, a");
  ExpectEverywhere(c, c.Executed(0));
}

TEST(negotiation_mismatch_names_ranks_and_values) {
  Cluster c({-1, 0, 0, 1, 1});
  for (int r = 0; r < 5; ++r) {
    Request q = Tensor("layer1.weight", {512, 64});
    if (r == 3) q.dtype = DType::kFloat16;
    Submit(&c, r, q);
  }
  c.Run();
  ExpectFailEverywhere(
      c, Code::kMismatch,
      "allreduce 'layer1.weight': rank 3 sent float16 [512, 64], ranks 0-2, 4 sent float32 [512, 64]; all ranks "
      "must pass the same dtype and shape.");
  c.Forget();
  SubmitAll(&c, Tensor("layer1.weight"));  // the engine stays usable
  c.Run();
  ExpectEverywhere(c, "layer1.weight");
}

TEST(negotiation_mismatch_of_a_cached_name) {
  Cluster c({-1, 0, 0, 1, 1});
  SubmitAll(&c, Tensor("w", {2}));
  c.Run();
  c.Forget();
  for (int r = 0; r < 5; ++r) Submit(&c, r, Tensor("w", {r == 4 ? 3 : 2}));
  c.Run();
  ExpectFailEverywhere(
      c, Code::kMismatch,
      "allreduce 'w': rank 4 sent float32 [3], ranks 0-3 sent float32 [2]; all ranks must pass the same dtype and "
      "shape.");
  c.Forget();
  SubmitAll(&c, Tensor("w", {3}));  // all agree on a new shape: negotiated anew
  c.Run();
  ExpectEverywhere(c, "w");
  EXPECT_EQ(c.Of<ExecuteBatch>(3)[0].entries[0].request->shape[0], 3);
}

TEST(negotiation_sizes_of_allgather_may_differ) {
  Cluster c(Cluster::Flat(3));
  for (int round = 0; round < 2; ++round) {
    for (int r = 0; r < 3; ++r) Submit(&c, r, Tensor("g", {r + round, 5}, OpType::kAllgather));
    c.Run();
  }
  ExpectEverywhere(c, "g, g");
}

TEST(negotiation_refusal_fails_the_others_once) {
  Cluster c(Cluster::Chain(3));
  c.nodes[1].Refuse(OpType::kAllreduce, 0, "x", "the tensor is sparse.", c.now);
  Submit(&c, 1, Tensor("x"));  // its next try: waits until the refusal is used up
  Submit(&c, 0, Tensor("x"));
  Submit(&c, 2, Tensor("x"));
  c.Run();
  for (int r : {0, 2}) EXPECT_EQ(c.FailText(r), "allreduce 'x': rank 1 refused it: the tensor is sparse.");
  EXPECT_EQ(c.Count<EntryFailed>(1), 0);
  Submit(&c, 0, Tensor("x"));
  Submit(&c, 2, Tensor("x"));
  c.Run();
  ExpectEverywhere(c, "x");
}

TEST(negotiation_failure_of_a_group_spares_the_next_group_of_its_name) {
  Cluster c(Cluster::Chain(3));
  const auto group = Group({"a", "b"});
  c.nodes[1].Refuse(OpType::kAllreduce, 0, "a", "no.", c.now);
  for (int r : {1, 0, 2}) c.nodes[r].Submit(group, c.now);  // rank 1: its next try
  c.Run();
  for (int r : {0, 2}) EXPECT_EQ(c.Count<EntryFailed>(r), 2);
  EXPECT_EQ(c.Count<EntryFailed>(1), 0);
  for (int r : {0, 2}) c.nodes[r].Submit(group, c.now);
  c.Run();
  ExpectEverywhere(c, "a+b");
}

TEST(negotiation_group_is_atomic) {
  Cluster c(Cluster::Flat(2), [](NodeConfig* n) { n->fusion_threshold_bytes = 0; });
  const auto group = Group({"a", "b"});
  c.nodes[0].Submit(group, c.now);
  SubmitAll(&c, Tensor("z"));
  c.Run();
  ExpectEverywhere(c, "z");
  c.nodes[1].Submit(group, c.now);
  c.Run();
  ExpectEverywhere(c, "z, a, b");
}

TEST(negotiation_group_alone_is_one_batch) {
  Cluster c(Cluster::Flat(2), [](NodeConfig* n) {
    n->disable_group_fusion = true;
    n->fusion_threshold_bytes = 16;
  });
  const auto group = Group({"a", "b", "c"});
  for (int r = 0; r < 2; ++r) {
    Submit(&c, r, Tensor("z"));
    c.nodes[r].Submit(group, c.now);
  }
  c.Run();
  ExpectEverywhere(c, "z, a+b+c");
}

TEST(negotiation_different_groups_fail_whole) {
  Cluster c(Cluster::Chain(3));
  c.nodes[0].Submit(Group({"a", "b"}), c.now);
  c.nodes[1].Submit(Group({"a", "c"}), c.now);
  c.nodes[2].Submit(Group({"a", "b"}), c.now);
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Count<EntryFailed>(r), 2);
  EXPECT_EQ(c.FailText(0), c.FailText(1));
  EXPECT(c.FailText(0).find("rank 1 sent it as tensor 1 of a group of 2") != std::string::npos);
  c.Forget();
  for (int r = 0; r < 3; ++r) c.nodes[r].Submit(Group({"a", "b"}), c.now);
  SubmitAll(&c, Tensor("c"));
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Count<EntryFailed>(r), 0);
  ExpectEverywhere(c, c.Executed(0));
  EXPECT_EQ(c.Count<ExecuteBatch>(0), 1);
}

TEST(negotiation_what_a_failing_group_leaves_complete_is_decided_once) {
  Cluster c(Cluster::Flat(3));
  c.nodes[2].Submit(Group({"a", "b"}), c.now);
  c.nodes[2].Join(5, c.now);
  for (const char* name : {"a", "b"}) Submit(&c, 0, Tensor(name));
  c.Run();
  for (const char* name : {"a", "b"}) Submit(&c, 1, Tensor(name));  // both complete in one frame
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Executed(r), "b");  // rank 2 stands in
  for (int r = 0; r < 2; ++r) EXPECT_EQ(c.Count<EntryFailed>(r), 1);
  EXPECT_EQ(c.Count<EntryFailed>(2), 2);
}

TEST(negotiation_set_comes_and_goes) {
  Cluster c({-1, 0, 0, 1, 1});
  for (int r = 0; r < 5; ++r) c.nodes[r].AddSet({4, 1}, 50, c.now);
  c.Run();
  for (int r = 0; r < 5; ++r) {
    EXPECT_EQ(c.Count<SetAdded>(r), 1);
    EXPECT_EQ(c.Of<SetAdded>(r)[0].ticket, 50u);
    EXPECT_EQ(c.nodes[r].SetRanks(1).size(), 2u);
  }
  Request q = Tensor("a");
  q.process_set = 1;
  Submit(&c, 1, q);
  Submit(&c, 4, q);
  c.Run();
  EXPECT_EQ(c.Executed(1), "a");
  EXPECT_EQ(c.Executed(4), "a");
  EXPECT_EQ(c.Executed(0), "");
  Submit(&c, 1, q);  // pending when the set goes
  for (int r = 0; r < 5; ++r) c.nodes[r].RemoveSet(1, 51, c.now);
  c.Run();
  EXPECT_EQ(c.FailText(1), "allreduce 'a' (process set 1): process set 1 was removed while it was waiting");
  for (int r = 0; r < 5; ++r) EXPECT_EQ(c.Count<SetRemoved>(r), 1);
  for (int r = 0; r < 5; ++r) c.nodes[r].AddSet({0, 1}, 52, c.now);
  c.Run();
  for (int r = 0; r < 5; ++r) EXPECT_EQ(c.Of<SetAdded>(r)[1].process_set, 2);  // never an id that was given once
  q.process_set = 2;
  Submit(&c, 0, q);
  Submit(&c, 1, q);
  c.Run();
  EXPECT_EQ(c.Executed(0), "a");
}

TEST(negotiation_set_errors) {
  Cluster c(Cluster::Flat(3));
  auto add = [&](std::vector<std::vector<int>> per_rank) {
    c.Forget();
    for (int r = 0; r < 3; ++r) c.nodes[r].AddSet(per_rank[r], 9, c.now);
    c.Run();
    std::string text;
    for (int r = 0; r < 3; ++r) {
      const auto fails = c.Of<SetChangeFailed>(r);
      EXPECT_EQ(fails.size(), 1u);
      if (r > 0 && !fails.empty()) EXPECT_EQ(fails[0].why.message(), text);
      if (!fails.empty()) text = fails[0].why.message();
    }
    return text;
  };
  EXPECT_EQ(
      add({{0, 1}, {0, 1}, {0, 2}}),
      "add_process_set: rank 2 sent ranks [0, 2], ranks 0-1 sent ranks [0, 1]; all ranks must make the same changes of "
      "process sets in the same order.");
  EXPECT_EQ(add({{}, {}, {}}), "add_process_set: a process set needs at least one rank.");
  EXPECT_EQ(add({{7}, {7}, {7}}), "add_process_set: 7 is not a rank; ranks are 0 to 2. Received: [7].");
  EXPECT_EQ(add({{1, 1}, {1, 1}, {1, 1}}), "add_process_set: a rank is named twice. Received: [1, 1].");
  EXPECT_EQ(add({{2, 1, 0}, {0, 1, 2}, {0, 1, 2}}),
            "add_process_set: process set 0 has these ranks already: [0, 1, 2]; use that one.");
  c.Forget();
  for (int r = 0; r < 3; ++r) c.nodes[r].RemoveSet(r == 0 ? 0 : 0, 9, c.now);
  c.Run();
  EXPECT_EQ(c.Of<SetChangeFailed>(1)[0].why.message(),
            "remove_process_set: process set 0 holds all ranks and cannot be removed.");
}

TEST(negotiation_join) {
  Cluster c({-1, 0, 0, 1, 1});
  SubmitAll(&c, Tensor("a"));
  c.Run();
  c.Forget();
  c.nodes[3].Join(77, c.now);
  for (int r : {0, 1, 2, 4}) Submit(&c, r, Tensor("a"));
  c.Run();
  ExpectEverywhere(c, "a");
  EXPECT_EQ(c.Of<ExecuteBatch>(3)[0].entries[0].ticket, 0u);
  EXPECT_EQ(c.Of<ExecuteBatch>(3)[0].entries[0].request->shape[0], 4);
  EXPECT(c.Of<ExecuteBatch>(2)[0].joined == std::vector<int>{3});
  for (int r : {0, 1, 2, 4}) Submit(&c, r, Tensor("g", {2}, OpType::kAllgather));
  c.Run();
  EXPECT_EQ(c.FailText(4), "allgather 'g': rank 3 has joined; only allreduce can run while a rank has joined.");
  EXPECT_EQ(c.Count<EntryFailed>(3), 0);
  for (int r : {4, 0, 2}) c.nodes[r].Join(77, c.now);
  c.Run();
  c.nodes[1].Join(77, c.now);
  c.Run();
  for (int r = 0; r < 5; ++r) {
    EXPECT_EQ(c.Count<AllJoined>(r), 1);
    EXPECT_EQ(c.Of<AllJoined>(r)[0].last_rank, 1);
    EXPECT_EQ(c.Of<AllJoined>(r)[0].ticket, 77u);
  }
  c.Forget();
  SubmitAll(&c, Tensor("g", {2}, OpType::kAllgather));  // and everything is as before
  c.Run();
  ExpectEverywhere(c, "g");
}

TEST(negotiation_join_after_submitting_counts_as_submitted) {
  Cluster c(Cluster::Chain(3));
  for (int round = 0; round < 2; ++round) {
    c.Forget();
    for (int r : {2, 0, 1}) {
      Submit(&c, r, Tensor("g", {2}, OpType::kAllgather));
      c.nodes[r].Join(5, c.now);
      c.Run();
    }
    ExpectEverywhere(c, "g");
    for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Count<AllJoined>(r), 1);
  }
}

// What stands for a joined rank would be multiplied, too.
TEST(negotiation_factors_that_reach_what_stands_for_a_joined_rank_are_refused) {
  Cluster c({-1, 0, 0});
  c.nodes[2].Join(77, c.now);
  const auto why = [&](ReduceOp op, double prescale) {
    c.Forget();
    Request q = Tensor("a");
    q.op = op;
    q.prescale = prescale;
    for (int r : {0, 1}) Submit(&c, r, q);
    c.Run();
    return c.FailText(1);
  };
  EXPECT_EQ(why(ReduceOp::kProduct, 2),
            "allreduce 'a': rank 2 has joined; op Product with prescale_factor 2 cannot run while a rank has joined. "
            "Multiply the tensor before the call.");
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (double factor : {-1.0, 0.0, std::nan("")}) EXPECT(!why(op, factor).empty());
    EXPECT_EQ(why(op, 0.5), "");
  }
  EXPECT_EQ(why(ReduceOp::kProduct, 1), "");
  EXPECT_EQ(why(ReduceOp::kSum, -1), "");
}

TEST(negotiation_submission_of_a_joined_rank_is_refused) {
  Cluster c(Cluster::Flat(2));
  c.nodes[1].Join(5, c.now);
  Submit(&c, 1, Tensor("a"));
  c.Run();
  EXPECT_EQ(c.FailText(1), "allreduce 'a': rank 1 has joined; it can submit again when all ranks have joined");
}

TEST(negotiation_goodbye_fails_only_what_needs_the_leaver) {
  Cluster c({-1, 0, 0, 1, 1});
  for (int r = 0; r < 5; ++r) c.nodes[r].AddSet({0, 1, 2}, 1, c.now);
  c.Run();
  Submit(&c, 1, Tensor("pending"));
  c.nodes[3].Goodbye(c.now);
  c.Run();
  EXPECT_EQ(
      c.FailText(1),
      "allreduce 'pending': rank 3 has shut down, and process set 0 needs it; give all ranks the same number of steps, "
      "or call join() on those that have fewer");
  for (int r = 0; r < 5; ++r) EXPECT_EQ(c.Of<RankLeft>(r)[0].rank, 3);
  c.nodes[4].PeerLost(3, "its process ended", c.now);  // no news
  c.Run();
  EXPECT(!c.nodes[4].aborted());
  Submit(&c, 2, Tensor("later"));
  EXPECT_EQ(
      LastFailure(&c.nodes[2]),
      "allreduce 'later': rank 3 has shut down, and process set 0 needs it; give all ranks the same number of steps, "
      "or call join() on those that have fewer");
  Request q = Tensor("a");
  q.process_set = 1;
  for (int r : {0, 1, 2}) Submit(&c, r, q);
  c.Run();
  for (int r : {0, 1, 2}) EXPECT_EQ(c.Executed(r), "a");
}

TEST(negotiation_goodbye_with_last_words_reaches_those_who_need_the_leaver) {
  Cluster c({-1, 0, 0, 1, 1});
  Submit(&c, 0, Tensor("a"));
  c.nodes[3].Goodbye(c.now, "ValueError: bad batch");
  c.Run();
  EXPECT_EQ(c.FailText(0), "allreduce 'a': rank 3 ended with ValueError: bad batch");
  EXPECT_EQ(c.Of<RankLeft>(2)[0].exception, "ValueError: bad batch");
  Submit(&c, 2, Tensor("b"));  // and what comes later
  EXPECT_EQ(LastFailure(&c.nodes[2]), "allreduce 'b': rank 3 ended with ValueError: bad batch");
}

TEST(negotiation_goodbye_of_everybody_in_any_order) {
  for (int first = 0; first < 4; ++first) {
    Cluster c({-1, 0, 1, 1});
    for (int i = 0; i < 4; ++i) {
      c.nodes[(first + i) % 4].Goodbye(c.now);
      c.Run();
    }
    for (int r = 0; r < 4; ++r) {
      int own = 0;
      for (const auto& a : c.Of<RankLeft>(r)) own += a.rank == r;
      EXPECT_EQ(own, 1);
      EXPECT(!c.nodes[r].aborted());
    }
  }
}

TEST(negotiation_goodbye_of_an_inner_rank_ends_everything) {
  Cluster c({-1, 0, 1, 0});
  for (int r = 0; r < 4; ++r) c.nodes[r].AddSet({0, 3}, 1, c.now);
  c.Run();
  c.nodes[1].Goodbye(c.now);
  c.Run();
  Request q = Tensor("a");
  q.process_set = 1;
  Submit(&c, 3, q);
  c.Run();
  EXPECT_EQ(c.FailText(3),
            "allreduce 'a' (process set 1): rank 1 has shut down, and other ranks were connected through it");
}

TEST(negotiation_loss_aborts_all) {
  Cluster c({-1, 0, 0, 1, 1});
  c.stopped[3] = true;
  c.nodes[1].PeerLost(3, "its process ended", c.now);
  c.Run();
  for (int r : {0, 1, 2, 4}) {
    EXPECT_EQ(c.Count<Aborted>(r), 1);
    EXPECT_EQ(c.Of<Aborted>(r)[0].why.message(), "rank 3 was lost: its process ended");
    EXPECT(c.Of<Aborted>(r)[0].why.code() == Code::kPeerLost);
  }
  Submit(&c, 4, Tensor("a"));
  c.Run();
  EXPECT_EQ(c.FailText(4), "allreduce 'a': rank 3 was lost: its process ended");
}

TEST(negotiation_loss_waits_for_a_goodbye) {
  Cluster c(Cluster::Flat(3), [](NodeConfig* n) { n->lost_grace_s = 0.5; });
  c.nodes[2].PeerLost(1, "its process ended", c.now);
  EXPECT_EQ(c.nodes[2].next_deadline(), c.now + 0.5);
  c.nodes[1].Goodbye(c.now);
  c.Run();
  c.now += 1;
  c.TickAll();
  EXPECT(!c.nodes[2].aborted());
  c.nodes[2].PeerLost(0, "its process ended", c.now);
  c.now += 1;
  c.TickAll();
  EXPECT(c.nodes[2].aborted());
}

TEST(negotiation_abort_from_a_leaf) {
  Cluster c(Cluster::Chain(4));
  c.nodes[3].Abort(Status(Code::kInternal, "disk on fire"), c.now);
  c.Run();
  for (int r = 0; r < 4; ++r) EXPECT_EQ(c.Of<Aborted>(r)[0].why.message(), "disk on fire");
}

TEST(negotiation_linger_and_batches_in_flight) {
  Cluster c({-1}, [](NodeConfig* n) {
    n->linger_s = 0.01;
    n->fusion_threshold_bytes = 100;
  });
  Node& n = c.nodes[0];
  Submit(&c, 0, Tensor("a"));
  n.Flush(c.now, 0);
  EXPECT(n.wants_flush());
  EXPECT_EQ(n.next_deadline(), c.now + 0.01);
  n.Flush(c.now, 0, /*someone_waits=*/true);
  EXPECT(!n.wants_flush());
  Submit(&c, 0, Tensor("b"));
  n.Flush(c.now + 1, 2);  // late enough, but the executor is busy
  EXPECT(n.wants_flush());
  EXPECT(n.next_deadline() > c.now + 1e6);
  n.Flush(c.now + 1, 1);
  EXPECT(!n.wants_flush());
  Submit(&c, 0, Tensor("c", {25}));  // a full batch does not linger
  n.Flush(c.now + 1, 0);
  EXPECT(!n.wants_flush());
}

TEST(negotiation_transient_is_never_cached) {
  Cluster c(Cluster::Flat(2));
  Request q = Tensor("allreduce.noname.1");
  q.transient = true;
  int64_t before = 0;
  for (int round = 0; round < 3; ++round) {
    c.bytes = 0;
    SubmitAll(&c, q);
    c.Run();
    if (round > 0) EXPECT_EQ(c.bytes, before);
    before = c.bytes;
  }
  ExpectEverywhere(c, "allreduce.noname.1, allreduce.noname.1, allreduce.noname.1");
}

TEST(negotiation_flat_tree_of_many_children) {
  Cluster c(Cluster::Flat(200));
  for (int round = 0; round < 2; ++round) {
    for (int r = 199; r >= 0; --r) Submit(&c, r, Tensor("a"));
    c.Run();
  }
  ExpectEverywhere(c, "a, a");
}

}  // namespace
}  // namespace hvd::test::negotiation_node
