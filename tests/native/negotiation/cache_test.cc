// What the negotiation remembers of names: when it is full, when names change, come back or go with their process set.
#include "negotiation/state/cache.h"

#include "native/negotiation/cluster.h"

namespace hvd::test::negotiation_cache {

using namespace hvd::negotiation;
namespace {

void SubmitAll(Cluster* c, const Request& q) {
  for (Node& node : c->nodes) node.Submit(std::span(&q, 1), c->now);
  c->Run();
}

std::string NameOfIndex(int i) { return "gradient/layer.weight." + std::to_string(i); }

// Bytes on the links for one step of n named tensors, each in the same (cyclic) order.
int64_t BytesOfAStep(Cluster* c, int n) {
  c->bytes = 0;
  for (int i = 0; i < n; ++i) SubmitAll(c, Tensor(NameOfIndex(i)));
  return c->bytes;
}

}  // namespace

TEST(negotiation_cache_of_any_capacity_gives_the_same_results) {
  for (int capacity : {-1, 0, 1, 2}) {
    Cluster c(Cluster::Chain(3), [&](NodeConfig* n) { n->cache_capacity = capacity; });
    std::string expected;
    for (int i = 0; i < 12; ++i) {
      const std::string name(1, static_cast<char>('a' + i % 4));
      SubmitAll(&c, Tensor(name));
      expected += (i ? ", " : "") + name;
    }
    for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Executed(r), expected);
  }
}

// A few names above the capacity cost what these few cost, not the whole cache.
TEST(negotiation_cache_that_is_full_keeps_what_it_has) {
  const auto step = [](int capacity, int names) {
    Cluster c(Cluster::Flat(2), [&](NodeConfig* n) { n->cache_capacity = capacity; });
    BytesOfAStep(&c, names);
    return BytesOfAStep(&c, names);
  };
  const int64_t fits = step(64, 64), none = step(0, 64);
  EXPECT(none > 3 * fits / 2);  // else this test measures nothing
  EXPECT(step(64, 70) < fits + fits / 4);
  EXPECT(step(64, 128) < fits + none + none / 16);
}

TEST(negotiation_cache_warns_once_when_it_is_full) {
  Cluster c(Cluster::Flat(2), [](NodeConfig* n) { n->cache_capacity = 2; });
  BytesOfAStep(&c, 5);
  EXPECT_EQ(c.Count<LogLine>(0), 1);
  EXPECT(c.Of<LogLine>(0)[0].text.find("caches 2 tensor names, and no more: that is HOROVOD_CACHE_CAPACITY") !=
         std::string::npos);
}

TEST(negotiation_cache_grows_with_the_names) {
  Cluster c(Cluster::Flat(2));
  BytesOfAStep(&c, 5000);
  const int64_t again = BytesOfAStep(&c, 5000);
  EXPECT(again < int64_t{5000} * 60);  // marks, with their frames' heads
  EXPECT_EQ(c.Count<LogLine>(0), 0);
}

TEST(negotiation_cache_a_million_names_in_bounded_memory) {
  Cache cache(-1, 1);
  int64_t given = 0;
  for (int i = 0; i < 1000000; ++i) {
    auto request = std::make_shared<Request>(Tensor(NameOfIndex(i)));
    const int32_t id = cache.NewId(*request);
    if (id < 0) continue;
    cache.Define(static_cast<uint32_t>(id), std::move(request));
    ++given;
  }
  EXPECT(given > 100000);
  EXPECT(given < 1000000);
  EXPECT(cache.bytes() <= Cache::kMostBytes);
  EXPECT_EQ(cache.size(), static_cast<size_t>(given));
  EXPECT_EQ(cache.IdOf({0, NameOfIndex(77)}), 77);
  EXPECT_EQ(cache.IdOf({0, NameOfIndex(999999)}), -1);
}

TEST(negotiation_cache_a_million_names_run) {
  constexpr int kNames = test::kSanitizer ? 200'000 : 1'000'000;
  Node node(PlainConfig());
  int64_t ran = 0;
  for (int i = 0; i < kNames; ++i) {
    const Request q = Tensor(NameOfIndex(i));
    node.Submit(std::span(&q, 1), 0);
    node.Flush(0, 0);
    for (const Action& a : node.actions()) ran += std::holds_alternative<ExecuteBatch>(a);
    node.actions().clear();
  }
  EXPECT_EQ(ran, kNames);
}

TEST(negotiation_cache_agrees_on_another_shape_under_the_same_id) {
  Cluster c(Cluster::Chain(3));
  SubmitAll(&c, Tensor("w", {2}));
  SubmitAll(&c, Tensor("w", {3}));
  c.bytes = 0;
  SubmitAll(&c, Tensor("w", {3}));
  EXPECT(c.bytes < 120);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(c.Executed(r), "w, w, w");
    EXPECT_EQ(c.Of<ExecuteBatch>(r)[2].entries[0].request->shape[0], 3);
  }
}

// Names whose places in the table are near one another come and go with their sets, in any order.
TEST(negotiation_cache_finds_every_name_that_stays) {
  constexpr int kNames = 500, kStep = 123;
  Cache cache(-1, 1);
  const auto key_of = [](int i) { return NameKey{i % 7, NameOfIndex(i)}; };
  for (int i = 0; i < kNames; ++i) {
    auto request = std::make_shared<Request>(Tensor(key_of(i).name));
    request->process_set = key_of(i).set;
    cache.Define(static_cast<uint32_t>(cache.NewId(*request)), request);
  }
  for (int gone = 0; gone < kNames; ++gone) {
    cache.Clear(static_cast<uint32_t>(gone * kStep % kNames), 0);
    for (int k = 0; k < kNames; ++k) {
      const int i = k * kStep % kNames;
      EXPECT_EQ(cache.IdOf(key_of(i)), k <= gone ? -1 : i);
    }
  }
  EXPECT_EQ(cache.names(), size_t{0});
}

// Sets come and go with their named tensors: their ids are free again.
TEST(negotiation_cache_forgets_the_names_of_a_set_that_is_gone) {
  Cluster c(Cluster::Flat(2), [](NodeConfig* n) { n->cache_capacity = 2; });
  for (int round = 1; round <= 5; ++round) {
    for (Node& node : c.nodes) node.AddSet({1}, 5, c.now);
    c.Run();
    Request q = Tensor("in the set");
    q.process_set = round;
    c.nodes[1].Submit(std::span(&q, 1), c.now);
    c.Run();
    c.bytes = 0;
    c.nodes[1].Submit(std::span(&q, 1), c.now);
    c.Run();
    EXPECT(c.bytes < 60);  // a mark, not the request
    for (Node& node : c.nodes) node.RemoveSet(round, 6, c.now);
    c.Run();
    EXPECT_EQ(c.Count<SetRemoved>(1), round);
  }
  EXPECT_EQ(c.Count<LogLine>(0), 0);
}

// What was on its way when its set was removed belongs to nobody, also when the id means something else by then.
TEST(negotiation_cache_a_mark_of_a_removed_set_is_void) {
  Cluster c(Cluster::Flat(3));
  for (Node& node : c.nodes) node.AddSet({1, 2}, 5, c.now);
  c.Run();
  Request q = Tensor("in the set");
  q.process_set = 1;
  for (int r : {1, 2}) c.nodes[r].Submit(std::span(&q, 1), c.now);
  c.Run();
  for (Node& node : c.nodes) node.RemoveSet(1, 6, c.now);
  c.Collect(1);  // its wish is on the way; then the mark
  c.nodes[1].Submit(std::span(&q, 1), c.now);
  c.Collect(1);
  c.Collect(2);
  c.Deliver(1, 0);
  c.Deliver(2, 0);
  c.nodes[0].Flush(c.now, 0);
  const Request w = Tensor("w");
  for (int r : {0, 2}) {
    while (c.Deliver(0, r)) continue;
    c.nodes[r].Submit(std::span(&w, 1), c.now);
    c.Collect(r);
  }
  c.Run();
  c.nodes[1].Submit(std::span(&w, 1), c.now);
  c.Run();
  EXPECT_EQ(c.FailText(1), "allreduce 'in the set' (process set 1): process set 1 was removed while it was waiting");
  for (int i = 0; i < 3; ++i) {
    SubmitAll(&c, w);
    for (int r = 0; r < 3; ++r) EXPECT_EQ(c.Count<Aborted>(r), 0);
  }
}

}  // namespace hvd::test::negotiation_cache
