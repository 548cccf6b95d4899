// Members that give up at random steps of random batches, while others are in it, behind it or ahead of it: who reports
// success holds the right bytes. One thread advances all ranks in random order, so a seed repeats a run exactly (over
// TCP nearly): HVD_TEST_SEED=<seed> hvd_tests give_up begins with it.
#include <cstdlib>

#include "native/engine/executor_world.h"

namespace hvd::test::engine_give_up {
namespace {

uint64_t FirstSeed() {
  const char* text = std::getenv("HVD_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

// A few batches over the whole job or a part of it. Many are broadcasts: there, members do not wait for all others.
std::vector<Item> FewItems(int n, std::mt19937_64& random) {
  constexpr OpType kChoice[] = {OpType::kBroadcast, OpType::kBroadcast, OpType::kBroadcast,     OpType::kAllreduce,
                                OpType::kAllreduce, OpType::kAllgather, OpType::kReducescatter, OpType::kAlltoall};
  std::vector<Item> log;
  for (uint64_t seq = 1; seq <= 4; ++seq) {
    Item item{seq, {}, kChoice[random() % 8], 0, 0, true};
    for (int r = 0; r < n; ++r) {
      if (random() % 4 != 0) item.ranks.push_back(r);
    }
    if (item.ranks.size() < 2) item.ranks = {0, 1};
    item.root = static_cast<int>(random() % item.ranks.size());
    const size_t most[] = {100, 3000, 60000, 450000};
    item.elems = 1 + random() % most[random() % 4];
    log.push_back(item);
  }
  return log;
}

// Until nothing moves any more. After `turns` of them rank `quitter` gives up.
void Advance(ExecutorWorld& world, int quitter, uint64_t turns, std::mt19937_64& random) {
  const bool dies = random() % 2 == 0;
  std::vector<bool> stuck(world.size(), false);
  for (int stuck_ranks = 0; stuck_ranks < world.size();) {
    const int rank = static_cast<int>(random() % world.size());
    if (world.Advance(rank)) {
      stuck.assign(world.size(), false);
      stuck_ranks = 0;
    } else if (!stuck[rank]) {
      stuck[rank] = true;
      ++stuck_ranks;
    }
    if (turns-- == 0 && quitter >= 0) {
      world.Quit(quitter, dies);
      quitter = -1;
      stuck.assign(world.size(), false);
      stuck_ranks = 0;
    }
  }
}

struct Count {
  int batches = 0, successes = 0;
};

// A run in which one rank gives up, or (in every eighth) nobody does.
void RunSeed(const std::vector<int>& hosts, Link link, uint64_t seed, Count* count) {
  std::mt19937_64 random(seed);
  ExecutorWorld world(hosts, link, static_cast<int>(seed % 3));  // the roots of measured broadcasts wait for the others
  const int n = world.size();
  const std::vector<Item> log = FewItems(n, random);
  for (const Item& item : log) {
    for (const int rank : item.ranks) world.Add(rank, item);
  }
  const int quitter = random() % 8 == 0 ? -1 : static_cast<int>(random() % n);
  Advance(world, quitter, random() % (uint64_t{2} << random() % 10), random);
  for (const Item& item : log) {
    for (const int rank : item.ranks) {
      ++count->batches;
      const bool succeeded = world.Succeeded(rank, item);
      count->successes += succeeded;
      const std::string where = std::string(NameOf(item.type)) + " " + std::to_string(item.seq) + " on rank " +
                                std::to_string(rank) + ", HVD_TEST_SEED=" + std::to_string(seed);
      if (succeeded && !world.Right(rank, item)) Fail(__FILE__, __LINE__, "wrong data in " + where);
      if (!succeeded && quitter < 0 && link != Link::kTcp) Fail(__FILE__, __LINE__, "not done: " + where);
    }
  }
}

constexpr int kShare = kThreadSanitizer ? 10 : kSanitizer ? 5 : 1;  // of the runs

void RunSeeds(const char* what, const std::vector<int>& hosts, Link link, int runs) {
  Count count;
  runs /= kShare;
  const uint64_t first = FirstSeed();
  for (uint64_t seed = first; seed < first + runs; ++seed) RunSeed(hosts, link, seed, &count);
  EXPECT(count.successes > count.batches / 20 && count.successes < count.batches);
  std::cerr << "  " << what << ": " << runs << " runs, " << count.successes << " of " << count.batches
            << " tensors succeeded" << std::endl;
}

TEST(give_up_over_shared_memory) { RunSeeds("shared memory", {0, 0, 0, 0}, Link::kMemory, 500); }
TEST(give_up_over_channels) {
  RunSeeds("channels", {0, 1, 2, 3}, Link::kMemory, 300);
  RunSeeds("channels, short transfers", {0, 1, 2, 3}, Link::kShort, 100);
}
TEST(give_up_over_both) {
  RunSeeds("two levels", {0, 0, 1, 1, 1}, Link::kMemory, 200);
  RunSeeds("two levels, short transfers", {0, 0, 1, 1, 1}, Link::kShort, 100);
}
TEST(give_up_over_tcp) {
  RunSeeds("TCP", {0, 1, 2, 3}, Link::kTcp, 200);
  RunSeeds("TCP between two hosts", {0, 0, 1, 1}, Link::kTcp, 200);
}

}  // namespace
}  // namespace hvd::test::engine_give_up
