// Small operations that the leaders of hosts exchange directly: in one message, whatever comes first, and with the same
// end on all ranks.
#include <algorithm>
#include <random>
#include <set>

#include "native/negotiation/cluster.h"
#include "negotiation/frames/wire.h"

namespace hvd::test::negotiation_direct {

using namespace hvd::negotiation;
namespace {

Bytes Brought(int rank, uint64_t ticket) {
  return Bytes(static_cast<size_t>(rank) + 1, static_cast<std::byte>(ticket));
}

// A rank per host, or the given tree with the given leaders.
class Hosts : public Cluster {
 public:
  explicit Hosts(int n) : Hosts(Flat(n), Everybody(n)) {}
  Hosts(std::vector<int> parent, const std::vector<int>& leaders)
      : Cluster(std::move(parent), [&](NodeConfig* c) {
          c->leaders = leaders;
          c->stall_warning_s = 1;
        }) {
    for (int r = 0; r < size(); ++r) Call(r, "a", 1);
    Run();  // a new name is negotiated in full
    Forget();
    frames = 0;
  }

  void Call(int r, const std::string& name, uint64_t ticket, bool bring = true) {
    Request q = Tensor(name);
    q.ticket = ticket;
    if (bring) q.payload = std::make_shared<Bytes>(Brought(r, ticket));
    nodes[r].Submit(std::span(&q, 1), now);
    Collect(r);
  }
  void CallAll(const std::string& name, uint64_t ticket) {
    for (int r = 0; r < size(); ++r) Call(r, name, ticket);
  }
  // Everything that is on its way, but for what is held.
  void DeliverBut(const std::set<std::pair<int, int>>& held) {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [link, queue] : links) {
        if (!held.count(link)) moved |= Deliver(link.first, link.second);
      }
      for (int r = 0; r < size(); ++r) {
        if (nodes[r].wants_flush()) nodes[r].Flush(now, 0);
        Collect(r);
      }
    }
  }
  // The tickets of what rank r has exchanged, in order.
  std::vector<uint64_t> Done(int r) const {
    std::vector<uint64_t> tickets;
    for (const Exchanged& e : Of<Exchanged>(r)) {
      tickets.push_back(e.entry.ticket);
      EXPECT_EQ(static_cast<int>(e.payloads.size()), size());
      for (int m = 0; m < size(); ++m) {
        EXPECT_EQ(e.payloads[m].rank, m);
        EXPECT(e.payloads[m].bytes == Brought(m, e.entry.ticket));
      }
    }
    return tickets;
  }

 private:
  static std::vector<int> Everybody(int n) {
    std::vector<int> ranks(n);
    for (int r = 0; r < n; ++r) ranks[r] = r;
    return ranks;
  }
};

using Tickets = std::vector<uint64_t>;

TEST(direct_operations_take_one_message) {
  for (const int n : {2, 3, 8}) {
    Hosts c(n);
    for (uint64_t ticket = 3; ticket < 9; ticket += 2) {
      c.CallAll("a", ticket);
      EXPECT_EQ(c.frames, n * (n - 1));  // each to each, before anybody has heard of another
      c.frames = 0;
      c.Run();
      EXPECT_EQ(c.frames, 0);
      for (int r = 0; r < n; ++r) EXPECT(c.Done(r) == Tickets{ticket});
      c.Forget();
    }
  }
}

TEST(direct_operations_come_to_all_ranks_of_a_host) {
  // Hosts 0 2 4, 1 3 5 6: 6 hangs under 3.
  Hosts c({-1, 0, 0, 1, 0, 1, 3}, {0, 1});
  for (uint64_t ticket = 3; ticket < 9; ticket += 2) {
    c.CallAll("a", ticket);
    c.Run();
    for (int r = 0; r < c.size(); ++r) EXPECT(c.Done(r) == Tickets{ticket});
    c.Forget();
  }
}

TEST(direct_operations_without_a_payload_go_the_usual_way) {
  for (int without = 0; without < 7; ++without) {
    Hosts c({-1, 0, 0, 1, 0, 1, 3}, {0, 1});
    for (int r = 0; r < c.size(); ++r) c.Call(r, "a", 3, r != without);
    c.Run();
    for (int r = 0; r < c.size(); ++r) {
      EXPECT_EQ(c.Executed(r), "a");
      EXPECT_EQ(c.Count<Exchanged>(r), 0);
    }
    c.Forget();
    c.CallAll("a", 5);  // nothing of the last one is left
    c.Run();
    for (int r = 0; r < c.size(); ++r) EXPECT(c.Done(r) == Tickets{5});
  }
}

// Rank 1 has everything, and goes on; the root still lacks what rank 2 has sent it.
TEST(direct_who_is_ahead_of_the_root_waits) {
  Hosts c(3);
  c.CallAll("a", 3);
  c.DeliverBut({{2, 0}});
  EXPECT(c.Done(1) == Tickets{3});
  EXPECT(c.Done(0).empty());
  c.Call(1, "a", 5);
  Request other = Tensor("a", {8});
  other.ticket = 7;
  c.DeliverBut({{2, 0}});
  EXPECT(c.Done(0).empty());
  c.Run();
  EXPECT(c.Done(0) == Tickets{3});
  c.Call(0, "a", 5);
  c.Call(2, "a", 5);
  c.DeliverBut({{2, 0}});
  EXPECT(c.Done(1) == (Tickets{3, 5}));
  c.nodes[1].Submit(std::span(&other, 1), c.now);  // the next one has another shape: by the tree, in full
  c.nodes[1].Submit(std::span<const Request>(), c.now);
  c.Collect(1);
  c.DeliverBut({{2, 0}});
  EXPECT(c.Done(0) == Tickets{3});
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT(c.Done(r) == (Tickets{3, 5}));
  for (const int r : {0, 2}) c.nodes[r].Submit(std::span(&other, 1), c.now);
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Executed(r), "a");
}

// All but rank 1 have everything; rank 2 leaves. The log says so before what rank 2 brought has come to rank 1.
TEST(direct_the_log_waits_for_who_is_behind) {
  Hosts c(3);
  c.CallAll("a", 3);
  c.DeliverBut({{2, 1}});
  EXPECT(c.Done(0) == Tickets{3});
  EXPECT(c.Done(2) == Tickets{3});
  c.nodes[2].Goodbye(c.now);
  c.Collect(2);
  c.DeliverBut({{2, 1}});
  EXPECT_EQ(c.Count<RankLeft>(0), 1);
  EXPECT_EQ(c.Count<RankLeft>(1), 0);
  EXPECT(c.Done(1).empty());
  EXPECT_EQ(c.FailText(1), "");
  c.Run();
  EXPECT(c.Done(1) == Tickets{3});
  EXPECT_EQ(c.Count<RankLeft>(1), 1);
  EXPECT_EQ(c.FailText(1), "");
}

// The root's own are a step behind and ahead, too.
TEST(direct_a_join_comes_after_what_was_done_before) {
  Hosts c(3);
  c.CallAll("a", 3);
  c.DeliverBut({{2, 0}});
  c.nodes[1].Join(9, c.now);
  c.Collect(1);
  c.DeliverBut({{2, 0}});
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT(c.Done(r) == Tickets{3});
  for (const int r : {0, 2}) c.Call(r, "a", 5);
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Executed(r), "a");
  EXPECT(c.Of<ExecuteBatch>(0)[0].joined == std::vector<int>{1});
}

// The root is done and leaves, before what rank 2 brought has come to rank 1: the end of its connection is no death.
TEST(direct_the_goodbye_of_the_root_waits_too) {
  Hosts c(3);
  c.CallAll("a", 3);
  c.DeliverBut({{2, 1}});
  c.nodes[0].Goodbye(c.now);
  c.Collect(0);
  c.DeliverBut({{2, 1}});
  EXPECT_EQ(c.Count<RankLeft>(2), 1);
  EXPECT(c.Done(1).empty() && c.nodes[1].has_unread(0) && !c.nodes[1].has_unread(2));
  c.nodes[1].LinkLost(0, "[tcp] rank 0 closed the connection.", c.now);
  EXPECT(!c.nodes[1].aborted());
  c.Run();
  EXPECT(c.Done(1) == Tickets{3});
  EXPECT(c.nodes[1].log_ended() && !c.nodes[1].has_unread(0));
  c.now += 3;
  c.nodes[1].Tick(c.now);
  EXPECT(!c.nodes[1].aborted());
}

// Rank 2 brings a step more and another operation, then joins; the root gets all of that when it has caught up.
TEST(direct_what_was_brought_before_a_join_counts) {
  Hosts c(4);
  c.CallAll("b", 1);
  c.Run();
  c.Forget();
  c.Call(3, "b", 5);
  c.Run();
  c.CallAll("a", 3);
  c.DeliverBut({{3, 0}});
  EXPECT(c.Done(0).empty());
  for (const int r : {0, 1}) c.Call(r, "b", 5);
  c.DeliverBut({{3, 0}, {1, 2}});
  c.Call(2, "a", 7);
  c.Call(2, "b", 5);
  c.nodes[2].Join(9, c.now);
  c.Collect(2);
  c.DeliverBut({{3, 0}, {1, 2}});
  c.Run();
  for (const int r : {0, 1, 3}) c.nodes[r].Join(9, c.now);
  for (const int r : {0, 1, 3}) c.Collect(r);
  c.Run();
  for (int r = 0; r < 4; ++r) {
    EXPECT(c.Done(r) == (Tickets{3, 5}));
    EXPECT_EQ(c.Executed(r), "a");
    EXPECT_EQ(c.Count<AllJoined>(r), 1);
    EXPECT_EQ(c.Count<Aborted>(r), 0);
  }
}

TEST(direct_a_lost_connection_ends_the_job_unless_a_goodbye_follows) {
  for (const bool goodbye : {false, true}) {
    Hosts c(3);
    if (goodbye) c.nodes[2].Goodbye(c.now);
    if (goodbye) c.Collect(2);
    c.nodes[1].LinkLost(2, "[tcp] rank 2 closed the connection.", c.now);
    if (goodbye) c.Run();
    EXPECT(!c.nodes[1].aborted());
    c.now += 3;
    c.nodes[1].Tick(c.now);
    EXPECT_EQ(c.nodes[1].aborted(), !goodbye);
  }
}

TEST(direct_who_does_not_come_is_named) {
  Hosts c(3);
  for (const int r : {0, 1}) c.Call(r, "a", 3);
  c.Run();
  for (int i = 0; i < 4; ++i) {
    c.now += 1;
    c.TickAll();
  }
  const std::vector<LogLine> lines = c.Of<LogLine>(0);
  EXPECT(!lines.empty());
  EXPECT(lines.empty() || lines[0].text.find("2") != std::string::npos);
}

// What an older turn brought does not count for a later one.
TEST(direct_what_the_log_has_answered_is_forgotten) {
  Hosts c(3);
  c.Call(0, "a", 3);
  c.Call(2, "a", 3, /*bring=*/false);
  c.DeliverBut({{0, 1}});  // rank 1 hears of it late
  c.Call(1, "a", 3, /*bring=*/false);
  c.DeliverBut({{0, 1}});
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Executed(r), "a");
  c.CallAll("a", 5);
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT(c.Done(r) == Tickets{5});
}

// What all have brought is done directly, also when the root keeps a tally of the name: a group of another rank, in
// which the name was, has failed because of another of its tensors.
TEST(direct_a_failed_group_of_the_name_does_not_part_the_root_from_the_others) {
  Hosts c(3);
  for (int r : {0, 2}) c.Call(r, "z", 3, /*bring=*/false);
  c.Call(0, "a", 5);
  c.Run();
  std::vector<Request> group = test::Group({"a", "z"});
  group[1].shape = {5};
  c.nodes[1].Submit(group, c.now);
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT(!c.FailText(r).empty());  // "z" has two shapes
  EXPECT_EQ(c.Count<EntryFailed>(0), 1);                       // its "a" waits on
  for (int r : {1, 2}) c.Call(r, "a", 5);
  c.Run();
  for (int r = 0; r < 3; ++r) {
    EXPECT(c.Done(r) == Tickets{5});
    EXPECT_EQ(c.Count<ExecuteBatch>(r), 0);
  }
  c.CallAll("a", 9);
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT((c.Done(r) == Tickets{5, 9}));
}

constexpr uint32_t kPrograms = kSanitizer ? 40 : 500;

// Ranks that call one operation after the other under two names, most of them small ones, and then leave: with any
// order of delivery each operation ends well everywhere, with what all have brought, and nobody is left behind.
TEST(direct_random_steps) {
  int ahead = 0;  // how often somebody had begun what comes after something that another had not ended
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    std::mt19937 rng(seed);
    const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
    const int hosts = 2 + pick(4), ranks = hosts + pick(4);
    std::vector<int> parent(ranks, 0), leaders(hosts);
    parent[0] = -1;
    for (int h = 0; h < hosts; ++h) leaders[h] = h;
    for (int r = hosts; r < ranks; ++r) parent[r] = pick(hosts);
    Hosts c(parent, leaders);
    constexpr int kSteps = 12;
    std::vector<int> seldom(kSteps);  // the rank that brings nothing
    for (int& who : seldom) who = pick(6) == 0 ? pick(ranks) : -1;
    // In some steps a rank first sends the name in a group with "z", which all others send alone and in another shape.
    // They go on, but for one, that waits until "z" has failed: the group fails, and the step is what it was.
    struct Clash {
      int who = -1, waits = -1;
      std::set<int> sent;
    };
    std::vector<Clash> clashes(kSteps);
    for (Clash& clash : clashes) {
      if (pick(4) > 0) continue;
      clash.who = pick(ranks);
      clash.waits = (clash.who + 1 + pick(ranks - 1)) % ranks;
    }
    std::vector<int> begun(ranks, 0), to_fail(ranks, 0);
    // True: it is the step's turn.
    const auto clash_over = [&](int r, int step, const std::string& name) {
      Clash& clash = clashes[step];
      const bool none_open = c.Count<EntryFailed>(r) == to_fail[r];
      if (clash.who < 0 || (clash.sent.count(r) > 0 && (none_open || (r != clash.who && r != clash.waits))))
        return true;
      if (clash.sent.count(r) > 0 || !none_open) return false;
      clash.sent.insert(r);
      std::vector<Request> group = test::Group({name, "z"});
      group[1].shape = {5};
      const Request alone = Tensor("z");
      c.nodes[r].Submit(r == clash.who ? std::span<const Request>(group) : std::span(&alone, 1), c.now);
      c.Collect(r);
      to_fail[r] += r == clash.who ? 2 : 1;
      return false;
    };
    const auto ended_on = [&](int r) { return c.Count<Exchanged>(r) + c.Count<ExecuteBatch>(r); };
    for (int idle = 0; idle < 400; ++idle) {
      const int r = pick(ranks);
      if (pick(3) == 0 && begun[r] <= ended_on(r) && begun[r] <= kSteps) {
        idle = 0;
        const std::string name = begun[r] % 3 == 2 ? "b" : "a";
        if (begun[r] < kSteps && !clash_over(r, begun[r], name)) continue;
        const int step = begun[r]++;
        const uint64_t ticket = 3 + 2 * static_cast<uint64_t>(step);
        if (step == kSteps) {
          c.nodes[r].Goodbye(c.now);
          c.Collect(r);
        } else {
          c.Call(r, name, ticket, seldom[step] != r);
        }
      }
      auto it = std::next(c.links.begin(), pick(static_cast<int>(c.links.size())));
      if (c.Deliver(it->first.first, it->first.second)) idle = 0;
      if (pick(2) == 0) c.nodes[0].Flush(c.now, 0);
      int slowest = kSteps;
      for (int n = 0; n < ranks; ++n) {
        c.Collect(n);
        slowest = std::min(slowest, ended_on(n));
      }
      ahead += *std::max_element(begun.begin(), begun.end()) > slowest + 1;
    }
    for (int r = 0; r < ranks; ++r) {
      const bool well = ended_on(r) == kSteps && c.Count<EntryFailed>(r) == to_fail[r] && c.Count<Aborted>(r) == 0;
      if (well && c.Done(r) == c.Done(0)) continue;
      return test::Fail(__FILE__, __LINE__, "rank " + std::to_string(r) + ", seed " + std::to_string(seed));
    }
  }
  EXPECT(ahead > 0);
}

// ---- what cannot be

Bytes Beside(int from, uint32_t id, const Turn& turn, const std::vector<Payload>& payloads, uint32_t number = 1) {
  Bytes frame(kFrameHeaderBytes);
  WriteHeader({Direction::kBeside, static_cast<uint32_t>(from), 7, number}, frame.data());
  ByteWriter w(&frame);
  w.Varint(id);
  WriteTurn(turn, &w);
  WritePayloads(payloads, &w);
  return frame;
}

TEST(direct_frames_that_cannot_be_are_refused) {
  const Turn turn{2, 0};  // defined, and run once
  const auto refused = [&](int to, int from, const Bytes& frame) {
    Hosts c({-1, 0, 0, 1}, {0, 1});
    const Status status = c.nodes[to].Receive(from, frame, c.now);
    EXPECT(!status.ok());
    return status.message();
  };
  for (const int to : {0, 1}) {
    const int from = 1 - to;
    const std::vector<Payload> whole = from == 0 ? std::vector<Payload>{{0, {}}, {2, {}}}  //
                                                 : std::vector<Payload>{{1, {}}, {3, {}}};
    Hosts c({-1, 0, 0, 1}, {0, 1});
    EXPECT_OK(c.nodes[to].Receive(from, Beside(from, 0, turn, whole, 0), c.now));
    EXPECT(c.nodes[to].Receive(from, Beside(from, 0, turn, whole, 1), c.now).message().find("twice") !=
           std::string::npos);
    EXPECT(refused(to, from, Beside(from, 0, turn, {whole[0]}, 0)).find("ranks of its host") != std::string::npos);
    EXPECT(refused(to, from, Beside(from, 0, turn, {{to, {}}}, 0)).find("ranks of its host") != std::string::npos);
  }
  (void)refused(3, 1, Beside(1, 0, turn, {{0, {}}, {1, {}}, {2, {}}, {3, {}}}, 0));  // it has not submitted it
  (void)refused(3, 0, Beside(0, 0, turn, {}, 0));                                    // no way from there
  (void)refused(2, 3, Beside(3, 0, turn, {}, 0));
}

}  // namespace
}  // namespace hvd::test::negotiation_direct
