// Payloads: what ranks bring to a small operation travels with their marks, and comes to all with the answer.
#include "negotiation/values/payload.h"

#include "native/negotiation/cluster.h"

namespace hvd::test::negotiation_payload {

using namespace hvd::negotiation;
namespace {

Bytes Of(int rank) { return Bytes(static_cast<size_t>(rank) + 1, static_cast<std::byte>(rank)); }

// Everybody submits it, some with what they bring. bring: per rank.
void Submit(Cluster* c, const std::string& name, const std::vector<bool>& bring, uint64_t ticket) {
  for (int r = 0; r < c->size(); ++r) {
    Request q = Tensor(name);
    q.ticket = ticket;
    if (bring[r]) q.payload = std::make_shared<Bytes>(Of(r));
    c->nodes[r].Submit(std::span(&q, 1), c->now);
  }
  c->Run();
}

std::vector<bool> All(int n) { return std::vector<bool>(static_cast<size_t>(n), true); }

TEST(payloads_come_to_all_by_rank) {
  for (const std::vector<int>& tree :
       {Cluster::Flat(2), Cluster::Flat(5), Cluster::Chain(4), std::vector{-1, 0, 0, 1, 1, 2}}) {
    Cluster c(tree);
    Submit(&c, "a", All(c.size()), 1);
    for (int r = 0; r < c.size(); ++r) EXPECT_EQ(c.Executed(r), "a");  // a new name is negotiated in full
    for (uint64_t ticket = 3; ticket < 9; ticket += 2) {
      c.Forget();
      Submit(&c, "a", All(c.size()), ticket);
      for (int r = 0; r < c.size(); ++r) {
        EXPECT_EQ(c.Count<ExecuteBatch>(r), 0);
        const std::vector<Exchanged> done = c.Of<Exchanged>(r);
        EXPECT_EQ(done.size(), 1u);
        EXPECT_EQ(done[0].entry.ticket, ticket);
        EXPECT_EQ(static_cast<int>(done[0].payloads.size()), c.size());
        for (int m = 0; m < c.size(); ++m) {
          EXPECT_EQ(done[0].payloads[m].rank, m);
          EXPECT(done[0].payloads[m].bytes == Of(m));
        }
      }
    }
  }
}

TEST(payloads_of_some_ranks_alone_are_forgotten) {
  for (int without = 0; without < 4; ++without) {
    Cluster c(Cluster::Chain(4));
    Submit(&c, "a", All(4), 1);
    std::vector<bool> bring = All(4);
    bring[without] = false;
    c.Forget();
    Submit(&c, "a", bring, 3);
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(c.Executed(r), "a");
      EXPECT_EQ(c.Count<Exchanged>(r), 0);
    }
    c.Forget();
    Submit(&c, "a", All(4), 5);  // nothing of the last one is left
    for (int r = 0; r < 4; ++r) EXPECT_EQ(c.Count<Exchanged>(r), 1);
  }
}

TEST(payloads_of_a_process_set_come_to_its_members) {
  Cluster c(Cluster::Chain(4));
  for (int r = 0; r < 4; ++r) c.nodes[r].AddSet({1, 3}, 1, c.now);
  c.Run();
  for (const uint64_t ticket : {3u, 5u}) {
    c.Forget();
    for (const int r : {1, 3}) {
      Request q = Tensor("a");
      q.process_set = 1;
      q.ticket = ticket;
      q.payload = std::make_shared<Bytes>(Of(r));
      c.nodes[r].Submit(std::span(&q, 1), c.now);
    }
    c.Run();
  }
  for (const int r : {0, 2}) EXPECT_EQ(c.Count<Exchanged>(r), 0);
  for (const int r : {1, 3}) {
    const std::vector<Exchanged> done = c.Of<Exchanged>(r);
    EXPECT_EQ(done.size(), 1u);
    EXPECT(done[0].payloads[0].bytes == Of(1) && done[0].payloads[1].bytes == Of(3));
  }
}

TEST(payloads_do_not_outlive_a_join) {
  Cluster c(Cluster::Flat(3));
  Submit(&c, "a", All(3), 1);
  c.Forget();
  c.nodes[2].Join(3, c.now);
  for (int r = 0; r < 2; ++r) {
    Request q = Tensor("a");
    q.ticket = 5;
    q.payload = std::make_shared<Bytes>(Of(r));
    c.nodes[r].Submit(std::span(&q, 1), c.now);
  }
  c.Run();
  for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Executed(r), "a");
  EXPECT(c.Of<ExecuteBatch>(0)[0].joined == std::vector<int>{2});
}

TEST(payloads_survive_the_wire) {
  Bytes wire;
  ByteWriter w(&wire);
  WritePayloads({{0, {}}, {2, Of(2)}, {3, Of(3)}}, &w);
  for (size_t cut = 0; cut <= wire.size(); ++cut) {
    ByteReader r(std::span<const std::byte>(wire).first(cut));
    const std::vector<Payload> read = ReadPayloads(&r, 4);
    EXPECT_EQ(r.ok(), cut == wire.size());
    if (r.ok()) EXPECT(read.size() == 3 && read[0].bytes.empty() && read[2].rank == 3 && read[2].bytes == Of(3));
  }
  ByteReader small(wire);
  (void)ReadPayloads(&small, 3);  // rank 3 of 3
  EXPECT(!small.ok());
}

TEST(payloads_out_of_order_or_too_large_are_refused) {
  const std::vector<std::vector<Payload>> wrong = {
      {{1, {}}, {0, {}}}, {{1, {}}, {1, {}}}, {{0, Bytes(kMostPayloadBytes)}, {1, Bytes(1)}}};
  for (const std::vector<Payload>& payloads : wrong) {
    Bytes wire;
    ByteWriter w(&wire);
    WritePayloads(payloads, &w);
    ByteReader r(wire);
    (void)ReadPayloads(&r, 4);
    EXPECT(!r.ok());
  }
}

}  // namespace
}  // namespace hvd::test::negotiation_payload
