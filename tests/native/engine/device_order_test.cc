// The two tracks of the executor, over fake devices: batches on devices are launched in the log's order on every rank,
// whenever each rank hears of them, and neither track waits for the other. One thread moves all ranks in random order,
// so a seed repeats a run exactly: HVD_TEST_SEED=<seed> hvd_tests device_order begins with it.
#include <cstdlib>

#include "native/engine/executor_world.h"
#include "native/engine/fake_device.h"

namespace hvd::test::engine_device_order {
namespace {

uint64_t FirstSeed() {
  const char* text = std::getenv("HVD_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

// The executors of a job with a fake device for each rank.
class DeviceWorld {
 public:
  explicit DeviceWorld(const std::vector<int>& hosts, int without_device = -1) : world(hosts, Link::kMemory) {
    for (int r = 0; r < world.size(); ++r)
      ranks.push_back(std::make_unique<FakeRank>(r, &fabric, &world.backends(r), r != without_device));
  }
  // Adds a batch to all its members.
  void Add(const Item& item) {
    for (const int rank : item.ranks) world.Add(rank, item);
  }
  void Advance() {
    for (int round = 0; round < 200; ++round) {
      for (int r = 0; r < world.size(); ++r) world.Advance(r);
    }
  }
  bool Succeeded(const Item& item) {
    return std::all_of(item.ranks.begin(), item.ranks.end(), [&](int r) { return world.Succeeded(r, item); });
  }
  void ExpectRight(const Item& item) {
    for (const int rank : item.ranks) EXPECT(world.Succeeded(rank, item) && world.Right(rank, item));
  }

  FakeFabric fabric;
  std::vector<std::unique_ptr<FakeRank>> ranks;
  ExecutorWorld world;
};

Item OnDevices(uint64_t seq, std::vector<int> ranks, OpType type = OpType::kAllreduce) {
  return {seq, std::move(ranks), type, 100, 0, true, true};
}
Item OnHost(uint64_t seq, std::vector<int> ranks) { return {seq, std::move(ranks), OpType::kAllreduce, 100, 0, true}; }

// Half of the batches lie on devices. Of these, some are of kinds that only the host's ways know.
std::vector<Item> MixedLog(int n, std::mt19937_64& random) {
  std::vector<Item> log = RandomLog(n, 40, random());
  for (Item& item : log) {
    item.exact = true;
    item.on_device = item.type != OpType::kBarrier && random() % 2 == 0;
    if (item.on_device && random() % 2 == 0) item.type = OpType::kAllreduce;
    if (item.on_device && item.type == OpType::kAllgather) item.type = OpType::kBroadcast;
  }
  return log;
}

void RunSeed(const std::vector<int>& hosts, uint64_t seed, size_t* launches) {
  std::mt19937_64 random(seed);
  DeviceWorld job(hosts);
  const int n = job.world.size();
  for (auto& rank : job.ranks) rank->backend->chance = [&random] { return random() % 8 == 0; };
  const std::vector<Item> log = MixedLog(n, random);
  std::vector<size_t> added(n, 0);
  for (size_t turns = 0; turns < 200000; ++turns) {
    const int r = static_cast<int>(random() % n);
    if (added[r] < log.size() && random() % 8 == 0) {
      const Item& item = log[added[r]++];
      if (MemberOf(item, r) >= 0) job.world.Add(r, item);
    }
    job.world.Advance(r);
    if (random() % 16 == 0) job.fabric.Work();
    if (turns % 512 != 0 || added != std::vector<size_t>(n, log.size())) continue;
    bool idle = true;
    for (int k = 0; k < n; ++k) idle &= job.world.executor(k).size() == 0;
    if (idle) break;
  }
  job.fabric.Work();
  for (const Item& item : log) {
    for (const int rank : item.ranks) {
      const std::string where = std::string(NameOf(item.type)) + " " + std::to_string(item.seq) + " on rank " +
                                std::to_string(rank) + ", HVD_TEST_SEED=" + std::to_string(seed);
      if (!job.world.Succeeded(rank, item)) {
        Fail(__FILE__, __LINE__, "not done: " + where);
      } else if (!job.world.Right(rank, item)) {
        Fail(__FILE__, __LINE__, "wrong data in " + where);
      }
    }
  }
  for (int r = 0; r < n; ++r) {
    EXPECT(job.world.why(r).ok());
    *launches += job.fabric.order(r).size();
  }
}

void RunSeeds(const std::vector<int>& hosts, int runs) {
  size_t launches = 0;
  runs /= kThreadSanitizer ? 4 : 1;
  const uint64_t first = FirstSeed();
  for (uint64_t seed = first; seed < first + runs; ++seed) RunSeed(hosts, seed, &launches);
  EXPECT(launches > 10u * static_cast<size_t>(runs));
}

// That each rank launches in the log's order, and all members the same, is seen by the fabric.
TEST(device_order_is_the_logs_over_shared_memory) { RunSeeds({0, 0, 0, 0}, 60); }
TEST(device_order_is_the_logs_over_channels) { RunSeeds({0, 1, 2}, 60); }
TEST(device_order_is_the_logs_over_both) { RunSeeds({0, 0, 1, 1, 1}, 40); }

TEST(device_order_introduces_each_set_once) {
  DeviceWorld job({0, 0, 1});
  const std::vector<Item> log = {OnDevices(1, {0, 1, 2}), OnDevices(2, {0, 1, 2}), OnDevices(3, {1, 2}),
                                 OnHost(4, {0, 1, 2}),    OnDevices(5, {1, 2}),    OnDevices(6, {0, 1, 2})};
  for (const Item& item : log) {
    job.Add(item);
    job.Advance();
  }
  job.fabric.Work();
  for (const Item& item : log) job.ExpectRight(item);
  EXPECT_EQ(job.ranks[0]->introducer->introductions, 1);
  EXPECT_EQ(job.ranks[1]->introducer->introductions, 2);
  EXPECT(job.fabric.order(1) == std::vector<uint64_t>({1, 2, 3, 5, 6}));
}

TEST(device_order_without_a_device_on_one_rank_is_staged_on_all) {
  DeviceWorld job({0, 1, 2}, /*without_device=*/1);
  const std::vector<Item> log = {OnDevices(1, {0, 1, 2}), OnDevices(2, {0, 2}), OnDevices(3, {0, 1, 2})};
  for (const Item& item : log) job.Add(item);
  job.Advance();
  job.fabric.Work();
  for (const Item& item : log) job.ExpectRight(item);
  EXPECT(job.fabric.order(0) == std::vector<uint64_t>({2}));
}

TEST(device_order_devices_hold_no_host_batch_back) {
  DeviceWorld job({0, 0});
  job.Add(OnDevices(1, {0, 1}));
  job.Advance();
  job.fabric.open = false;
  const Item closed = OnDevices(2, {0, 1}), host = OnHost(3, {0, 1}), behind = OnDevices(4, {0, 1});
  for (const Item& item : {closed, host, behind}) job.Add(item);
  job.Advance();
  job.ExpectRight(host);
  EXPECT(!job.Succeeded(closed) && !job.Succeeded(behind));
  EXPECT_EQ(job.world.executor(0).size(), 2u);
  EXPECT_EQ(job.world.executor(0).Describe(), "allreduce 'x2'");
  job.fabric.open = true;
  job.Advance();
  job.fabric.Work();
  job.ExpectRight(closed);
  job.ExpectRight(behind);
}

TEST(device_order_host_batches_hold_no_device_back) {
  DeviceWorld job({0, 0, 0});
  job.Add(OnDevices(1, {0, 1}));
  job.Advance();
  const Item late = OnHost(2, {0, 1, 2}), direct = OnDevices(3, {0, 1}),
             staged = OnDevices(4, {0, 1}, OpType::kBroadcast);
  const Item behind = OnDevices(5, {0, 1});
  for (const int rank : {0, 1}) job.world.Add(rank, late);  // rank 2 has not come
  for (const Item& item : {direct, staged, behind}) job.Add(item);
  job.Advance();
  job.fabric.Work();
  job.ExpectRight(direct);
  EXPECT(!job.Succeeded(staged));
  EXPECT(!job.Succeeded(behind));  // the way of the one before is not decided
  job.world.Add(2, late);
  job.Advance();
  job.fabric.Work();
  for (const Item& item : {late, staged, behind}) job.ExpectRight(item);
}

// A batch of one set that waits for its introduction lets no later one of another set, already introduced, overtake it.
TEST(device_order_an_introduction_that_waits_is_not_overtaken) {
  DeviceWorld job({0, 1, 2});
  job.Add(OnDevices(1, {0, 1}));
  job.Advance();
  const Item first = OnDevices(2, {0, 1, 2}), second = OnDevices(3, {0, 1});
  for (const int rank : {0, 1}) job.world.Add(rank, first);
  job.Add(second);
  job.Advance();
  EXPECT(job.fabric.order(0) == std::vector<uint64_t>({1}));
  job.world.Add(2, first);
  job.Advance();
  job.fabric.Work();
  job.ExpectRight(first);
  job.ExpectRight(second);
  EXPECT(job.fabric.order(0) == std::vector<uint64_t>({1, 2, 3}));
}

// Of a backend that needs both tracks: what is before it on devices is launched first, and what is behind it last.
TEST(device_order_a_batch_in_both_tracks_has_its_place_in_both) {
  DeviceWorld job({0, 0});
  job.Add(OnDevices(1, {0, 1}));
  job.Advance();
  job.fabric.open = false;
  const Item before = OnDevices(2, {0, 1}), both = OnDevices(3, {0, 1}, OpType::kReducescatter),
             behind = OnDevices(4, {0, 1});
  for (const Item& item : {before, both, behind}) job.Add(item);
  job.Advance();
  for (const auto& rank : job.ranks) EXPECT(rank->both->launched().empty());
  for (const auto& rank : job.ranks) rank->both->open = false;
  job.fabric.open = true;
  job.Advance();
  for (const auto& rank : job.ranks) EXPECT(rank->both->launched() == std::vector<uint64_t>({3}));
  EXPECT(job.fabric.order(0) == std::vector<uint64_t>({1, 2}));
  for (const auto& rank : job.ranks) rank->both->open = true;
  job.Advance();
  job.fabric.Work();
  for (const Item& item : {before, both, behind}) job.ExpectRight(item);
  EXPECT(job.fabric.order(0) == std::vector<uint64_t>({1, 2, 4}));
  EXPECT_EQ(job.world.executor(0).size(), 0u);
}

TEST(device_order_a_set_is_introduced_again_once_a_rank_has_a_device) {
  DeviceWorld job({0, 1, 2}, /*without_device=*/1);
  const Item staged = OnDevices(1, {0, 1, 2}), on_devices = OnDevices(2, {0, 1, 2}), last = OnDevices(3, {0, 1, 2});
  job.Add(staged);
  job.Advance();
  job.ExpectRight(staged);
  job.world.backends(1).SetDevices(&job.ranks[1]->devices);
  for (const Item& item : {on_devices, last}) job.Add(item);
  job.Advance();
  job.fabric.Work();
  for (const Item& item : {on_devices, last}) job.ExpectRight(item);
  EXPECT(job.fabric.order(1) == std::vector<uint64_t>({2, 3}));
  EXPECT_EQ(job.ranks[1]->introducer->introductions, 2);
}

TEST(device_order_giving_up_ends_both_tracks) {
  DeviceWorld job({0, 0});
  job.Add(OnDevices(1, {0, 1}));
  job.Advance();
  job.fabric.open = false;
  job.Add(OnDevices(2, {0, 1}));
  job.world.Add(0, OnHost(3, {0, 1}));
  job.Advance();
  EXPECT_EQ(job.world.executor(0).Cancel().size(), 2u);
  EXPECT(!job.world.executor(0).running());
  job.world.Add(1, OnHost(3, {0, 1}));
  job.Advance();
  EXPECT_EQ(job.world.why(1).message(),
            "allreduce 'x3' on rank 1: rank 0 gave up the collective; its own error says why.");
  job.fabric.open = true;
  job.Advance();
  EXPECT(job.fabric.order(1) == std::vector<uint64_t>({1}));  // nothing runs any more
}

}  // namespace
}  // namespace hvd::test::engine_device_order
