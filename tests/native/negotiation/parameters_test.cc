// Parameters that change while the job runs: every rank sees the change between the same two batches.
#include "negotiation/values/parameters.h"

#include <cmath>
#include <limits>
#include <random>
#include <span>

#include "native/negotiation/cluster.h"

namespace hvd::test::negotiation_parameters {

using namespace hvd::negotiation;
namespace {

Parameters Numbered(int i) {
  Parameters p;
  p.fusion_threshold_bytes = i % 3 == 0 ? 0 : 1 << 20;
  p.cycle_time_ms = i;
  p.hierarchical_allreduce = i % 3 - 1;
  p.hierarchical_allgather = i / 3 % 3 - 1;
  p.torus_allreduce = i / 9 % 3 - 1;
  return p;
}

// What a rank was told, in order: batches with the parameters that they go by.
std::string Course(const Cluster& c, int rank) {
  std::string told;
  Parameters now;
  for (const Action& a : c.done[rank]) {
    if (const auto* change = std::get_if<ParametersChanged>(&a)) now = change->parameters;
    const auto* batch = std::get_if<ExecuteBatch>(&a);
    if (batch == nullptr) continue;
    for (const Entry& e : batch->entries) told += e.request->name + " ";
    told += "by " + std::to_string(now.cycle_time_ms) + "/" + std::to_string(now.hierarchical_allreduce) + "/" +
            std::to_string(now.hierarchical_allgather) + "/" + std::to_string(now.torus_allreduce) + "; ";
  }
  return told;
}

TEST(parameters_come_back_as_written) {
  for (int i = 0; i < 27; ++i) {
    std::vector<std::byte> bytes;
    ByteWriter w(&bytes);
    WriteParameters(Numbered(i), &w);
    ByteReader r(bytes);
    EXPECT(ReadParameters(&r) == Numbered(i));
    EXPECT(r.ok() && r.AtEnd());
    for (size_t length = 0; length < bytes.size(); ++length) {
      const std::span<const std::byte> some(bytes.data(), length);
      ByteReader cut(some);
      ReadParameters(&cut);
      EXPECT(!cut.ok());
    }
  }
}

TEST(parameters_that_cannot_be_are_refused) {
  std::vector<Parameters> wrong(7);
  wrong[0].fusion_threshold_bytes = -1;
  wrong[1].cycle_time_ms = -0.5;
  wrong[2].cycle_time_ms = std::numeric_limits<double>::quiet_NaN();
  wrong[3].cycle_time_ms = 1e9;
  wrong[4].hierarchical_allreduce = 2;
  wrong[5].hierarchical_allgather = -2;
  wrong[6].torus_allreduce = 7;
  for (const Parameters& p : wrong) {
    EXPECT(Check(p).code() == Code::kInvalidArgument);
    std::vector<std::byte> bytes;
    ByteWriter w(&bytes);
    WriteParameters(p, &w);
    ByteReader r(bytes);
    ReadParameters(&r);
    EXPECT(!r.ok());
  }
  EXPECT_OK(Check(Parameters()));
}

TEST(parameters_torus_asks_for_the_two_level_way) {
  Parameters p;
  for (const int hierarchical : {-1, 0, 1}) {
    p.hierarchical_allreduce = hierarchical;
    for (const int torus : {-1, 0}) {
      p.torus_allreduce = torus;
      EXPECT_EQ(p.two_level_allreduce(), hierarchical);
    }
    p.torus_allreduce = 1;
    EXPECT_EQ(p.two_level_allreduce(), 1);
  }
}

TEST(parameters_decide_the_next_batches) {
  Cluster c(Cluster::Chain(3));
  const auto run = [&c](const std::string& names) {
    c.Forget();
    for (int r = 0; r < c.size(); ++r) {
      for (const char name : names) {
        const Request q = Tensor(std::string(1, name));
        c.nodes[r].Submit(std::span(&q, 1), c.now);
      }
    }
    c.Run();
    return c.Executed(2);
  };
  EXPECT_EQ(run("ab"), "a+b");
  Parameters p;
  p.fusion_threshold_bytes = 0;
  c.nodes[0].ChangeParameters(p, c.now);
  EXPECT_EQ(run("ab"), "a, b");
  p.fusion_threshold_bytes = 1 << 20;
  p.cycle_time_ms = 5;
  c.nodes[0].ChangeParameters(p, c.now);
  EXPECT_EQ(run("ab"), "");  // it lingers
  EXPECT(std::abs(c.nodes[0].next_deadline() - (c.now + 5e-3)) < 1e-9);
  c.now += 6e-3;
  c.Run();
  EXPECT_EQ(c.Executed(2), "a+b");
  c.nodes[1].ChangeParameters(Numbered(0), c.now);  // not the root
  EXPECT_EQ(run("c"), "");
  c.now += 6e-3;
  c.Run();
  EXPECT_EQ(c.Count<ParametersChanged>(2), 0);
}

// Random trees, delivery and moments of change: one course for all.
TEST(parameters_change_at_one_place_of_the_log) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 rng(seed);
    const auto pick = [&rng](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
    std::vector<int> parent(1 + pick(8), -1);
    for (int r = 1; r < static_cast<int>(parent.size()); ++r) parent[r] = pick(r);
    Cluster c(parent);
    std::vector<int> submitted(parent.size(), 0);
    int changes = 0;
    constexpr int kNames = 20;
    for (int step = 0; step < 600; ++step) {
      const int r = pick(c.size());
      switch (pick(4)) {
        case 0:
          if (submitted[r] < kNames) {
            const Request q = Tensor("t" + std::to_string((submitted[r]++ * 7 + r) % kNames));
            c.nodes[r].Submit(std::span(&q, 1), c.now);
          }
          break;
        case 1:
          if (pick(4) == 0) c.nodes[0].ChangeParameters(Numbered(++changes), c.now);
          c.nodes[0].Flush(c.now, pick(3), pick(2) == 0);
          break;
        default:
          for (const auto& [link, queue] : c.links) {
            if (!queue.empty() && pick(3) == 0) {
              c.Deliver(link.first, link.second);
              break;
            }
          }
      }
      c.now += 1e-3;
      c.Collect(r);
    }
    for (int r = 0; r < c.size(); ++r) {
      for (; submitted[r] < kNames; ++submitted[r]) {
        const Request q = Tensor("t" + std::to_string((submitted[r] * 7 + r) % kNames));
        c.nodes[r].Submit(std::span(&q, 1), c.now);
      }
    }
    c.Run();
    c.now += 1;
    c.Run();
    EXPECT_EQ(c.Count<ParametersChanged>(0), changes);
    const std::string course = Course(c, 0);
    EXPECT(course.find("t19 ") != std::string::npos);
    for (int r = 1; r < c.size(); ++r) EXPECT_EQ(Course(c, r), course);
  }
}

}  // namespace
}  // namespace hvd::test::negotiation_parameters
