// Process sets that their members ask for alone.
#include "negotiation/values/new_set.h"

#include <deque>
#include <string>

#include "native/negotiation/cluster.h"

namespace hvd::test::negotiation_new_set {

using namespace hvd::negotiation;

TEST(negotiation_new_set_names_its_members) {
  EXPECT_EQ(MembersOfNewSet(NameOfNewSet({0, 2, 3, 17})).Text(), "ranks 0, 2-3, 17");
  EXPECT(NamesNewSet(NameOfNewSet({5})));
  const std::string prefix = NameOfNewSet({});
  for (const char* wrong : {"", ",", "1,", ",1", "2,1", "1,1", "-1", "1, 2", "x", "99999999999", "-0", "01", "0,02"})
    EXPECT(MembersOfNewSet(prefix + wrong).empty());
  for (const char* other : {"", "allreduce.a", "send 0->1", "members.1"}) EXPECT(!NamesNewSet(other));
}

TEST(negotiation_new_set_is_asked_for_by_its_members_alone) {
  Cluster c({-1, 0, 0, 1, 1});  // its members below different nodes, and not the root
  c.nodes[4].AddSet({4, 2}, 50, c.now, true);
  c.Run();
  for (int r = 0; r < 5; ++r) EXPECT_EQ(c.Count<SetAdded>(r), 0);
  c.nodes[2].AddSet({2, 4}, 51, c.now, true);
  c.Run();
  const uint64_t tickets[] = {0, 0, 51, 0, 50};
  for (int r = 0; r < 5; ++r) {
    EXPECT_EQ(c.Count<SetAdded>(r), 1);
    EXPECT_EQ(c.Of<SetAdded>(r)[0].ticket, tickets[r]);
    EXPECT_EQ(c.nodes[r].SetRanks(1).size(), 2u);
  }
  Request q = Tensor("a");
  q.process_set = 1;
  for (const int r : {2, 4}) c.nodes[r].Submit(std::span(&q, 1), c.now);
  c.Run();
  EXPECT_EQ(c.Executed(2), "a");
  EXPECT_EQ(c.Executed(4), "a");
  EXPECT_EQ(c.Executed(0), "");
  // What all ranks ask for is counted as before.
  for (int r = 0; r < 5; ++r) c.nodes[r].AddSet({0, 1}, 52, c.now);
  c.Run();
  for (int r = 0; r < 5; ++r) EXPECT_EQ(c.Of<SetAdded>(r)[1].process_set, 2);
}

TEST(negotiation_new_sets_of_different_members_come_in_any_order) {
  Cluster c(Cluster::Flat(3));
  c.nodes[0].AddSet({0, 1}, 1, c.now, true);
  c.nodes[0].AddSet({0, 2}, 2, c.now, true);
  c.nodes[2].AddSet({1, 2}, 3, c.now, true);
  c.nodes[2].AddSet({0, 2}, 4, c.now, true);
  c.Run();
  c.nodes[1].AddSet({1, 2}, 5, c.now, true);
  c.nodes[1].AddSet({0, 1}, 6, c.now, true);
  c.Run();
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(c.Count<SetAdded>(r), 3);
    EXPECT_EQ(c.nodes[r].SetRanks(3).size(), 2u);
  }
}

TEST(negotiation_new_set_that_exists_fails_on_its_members) {
  Cluster c(Cluster::Flat(3));
  for (int round = 0; round < 2; ++round) {
    for (const int r : {0, 2}) c.nodes[r].AddSet({0, 2}, 9, c.now, true);
    c.Run();
  }
  for (const int r : {0, 2}) {
    EXPECT_EQ(c.Count<SetAdded>(r), 1);
    EXPECT_EQ(c.Of<SetChangeFailed>(r)[0].why.message(),
              "add_process_set: process set 1 has these ranks already: [0, 2]; use that one.");
  }
  EXPECT_EQ(c.Count<SetChangeFailed>(1), 0);
}

TEST(negotiation_new_set_ends_with_a_member) {
  Cluster c(Cluster::Flat(3));
  c.nodes[0].AddSet({0, 2}, 9, c.now, true);
  c.nodes[2].Goodbye(c.now);
  c.Run();
  EXPECT_EQ(c.Count<SetChangeFailed>(0), 1);
}

TEST(negotiation_new_set_that_cannot_be_is_refused) {
  // What node 1 would pass up of a node that does not check: ranks that are none, or a request of a stranger.
  for (const std::vector<int>& ranks : {std::vector<int>{1, 7}, std::vector<int>{0, 2}}) {
    Cluster c(Cluster::Flat(3));
    c.nodes[1].AddSet(ranks, 9, c.now, true);
    c.Collect(1);
    std::deque<Bytes>& link = c.links[{1, 0}];
    if (link.empty()) continue;  // it was not even sent
    EXPECT(!c.nodes[0].Receive(1, link.front(), c.now).ok());
  }
}

}  // namespace hvd::test::negotiation_new_set
