// Schedules, without any transport: a simulator executes the plans of all positions over sets of contributions. Every
// element of every member is combined from each contribution exactly once and lower positions' blocks consistently;
// sends match receives; nothing deadlocks with channels that hold nothing; bytes per member and steps are those of the
// papers.
#include "collective/channels/schedule.h"

#include <set>

#include "native/harness/harness.h"

namespace hvd::test::collective_channels_schedule {
namespace {

using namespace hvd::collective::channels;

// The value of an element: the contributions in it, in the order of combination ("((0+1)+2)" as text).
using Value = std::string;
using Vector = std::vector<Value>;

struct Side {
  Plan plan;
  Vector input, output;
  size_t sent = 0, received = 0;
};

// Rendezvous: a message moves only when its sender and its receiver are both at it. Random-looking but fixed order of
// progress.
bool Simulate(std::vector<Side>* sides) {
  const int n = static_cast<int>(sides->size());
  uint64_t x = 88172645463325252u;
  bool moved = true;
  while (moved) {
    moved = false;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    for (int i = 0; i < n; ++i) {
      const int r = static_cast<int>((i + x) % n);
      Side& to = (*sides)[r];
      if (to.received == to.plan.receives.size()) continue;
      const Transfer& in = to.plan.receives[to.received];
      Side& from = (*sides)[in.peer];
      if (from.sent == from.plan.sends.size()) continue;
      const Transfer& out = from.plan.sends[from.sent];
      if (out.peer != r || from.received < out.after) continue;
      // The message leaves (as it is now); its combination may have to wait for an own send.
      if (to.sent < in.after && !(to.sent + 1 == in.after && to.plan.sends[to.sent].peer == in.peer)) continue;
      EXPECT_EQ(out.step, in.step);
      EXPECT_EQ(out.segment, in.segment);
      EXPECT_EQ(out.range.size(), in.range.size());
      const auto take = [](const Side& s, const Transfer& t) {
        const Vector& v = t.own == Where::kInput ? s.input : s.output;
        return Vector(v.begin() + t.range.begin, v.begin() + t.range.end);
      };
      const auto give = [](Side& s, const Transfer& t, const Vector& value) {
        for (size_t k = 0; k < value.size(); ++k) {
          Value& dst = s.output[t.range.begin + k];
          const Value own = t.own == Where::kInput ? s.input[t.range.begin + k] : dst;
          if (t.action == Action::kStore) dst = value[k];
          if (t.action == Action::kOwnFirst) dst = "(" + own + "+" + value[k] + ")";
          if (t.action == Action::kOwnLast) dst = "(" + value[k] + "+" + own + ")";
          if (t.last) dst = "!" + dst;
        }
      };
      const Vector value = take(from, out);
      if (to.sent < in.after) {  // both directions of an exchange at once
        const Transfer& back = to.plan.sends[to.sent];
        if (from.received == from.plan.receives.size() || from.plan.receives[from.received].peer != r ||
            to.received < back.after)
          continue;
        const Vector other = take(to, back);
        give(from, from.plan.receives[from.received++], other);
        ++to.sent;
      }
      give(to, in, value);
      ++from.sent;
      ++to.received;
      moved = true;
    }
  }
  for (const Side& s : *sides) {
    if (s.sent != s.plan.sends.size() || s.received != s.plan.receives.size()) return false;
  }
  return true;
}

size_t UnitsSent(const Plan& plan) {
  size_t units = 0;
  for (const Transfer& t : plan.sends) units += t.range.size();
  return units;
}
size_t StepsOf(const Plan& plan) {
  std::set<uint32_t> steps;
  for (const auto* list : {&plan.sends, &plan.receives}) {
    for (const Transfer& t : *list) steps.insert(t.step);
  }
  return steps.size();
}
bool SortedBySteps(const Plan& plan) {
  for (const auto* list : {&plan.sends, &plan.receives}) {
    for (size_t i = 1; i < list->size(); ++i) {
      if ((*list)[i - 1].step > (*list)[i].step) return false;
    }
  }
  return true;
}

using AllreducePlanner = Plan (*)(const Shape&);

std::vector<Side> Allreduce(AllreducePlanner planner, int n, size_t units, size_t segment, bool in_place) {
  std::vector<Side> sides(n);
  for (int r = 0; r < n; ++r) {
    sides[r].plan = planner({n, r, units, segment});
    sides[r].input.assign(units, std::to_string(r));
    sides[r].output.assign(units, in_place ? std::to_string(r) : "?");
    // In place: there is one vector.
    if (!in_place) continue;
    for (auto* list : {&sides[r].plan.sends, &sides[r].plan.receives}) {
      for (Transfer& t : *list) t.own = Where::kOutput;
    }
  }
  return sides;
}

// Each contribution once, equal on all members, the final mark once and outermost.
void ExpectComplete(const std::vector<Side>& sides, size_t units) {
  const int n = static_cast<int>(sides.size());
  for (size_t u = 0; u < units; ++u) {
    const Value& v = sides[0].output[u];
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(sides[r].output[u], v);
      const std::string name = std::to_string(r);
      const size_t at = v.find(name);
      EXPECT(at != std::string::npos && v.find(name, at + 1) == std::string::npos);
    }
    EXPECT_EQ(v.rfind('!'), size_t{0});
  }
}

TEST(schedule_allreduce_reduces_everything_once) {
  for (const AllreducePlanner planner : {&AllreduceDoubling, &AllreduceHalving, &AllreduceRing}) {
    for (int n = 2; n <= 9; ++n) {
      for (const size_t units : {size_t{0}, size_t{1}, size_t(n - 1), size_t(n), size_t(n + 1), size_t{64}}) {
        for (const size_t segment : {size_t{1}, size_t{3}, size_t{1000}}) {
          for (const bool in_place : {false, true}) {
            std::vector<Side> sides = Allreduce(planner, n, units, segment, in_place);
            for (const Side& s : sides) EXPECT(SortedBySteps(s.plan));
            EXPECT(Simulate(&sides));
            ExpectComplete(sides, units);
          }
        }
      }
    }
  }
}

TEST(schedule_doubling_combines_consecutive_blocks_in_order) {
  std::vector<Side> sides = Allreduce(&AllreduceDoubling, 4, 1, 1, false);
  EXPECT(Simulate(&sides));
  EXPECT_EQ(sides[3].output[0], "!((0+1)+(2+3))");
  sides = Allreduce(&AllreduceDoubling, 6, 1, 1, false);
  EXPECT(Simulate(&sides));
  EXPECT_EQ(sides[2].output[0], "!(((0+1)+(2+3))+(4+5))");
}

TEST(schedule_allreduce_bytes_and_steps_are_those_of_theory) {
  for (int n = 2; n <= 8; ++n) {
    const size_t units = 840 * 8;  // divisible by all
    for (int r = 0; r < n; ++r) {
      const Plan ring = AllreduceRing({n, r, units, 100});
      EXPECT_EQ(UnitsSent(ring), 2 * (n - 1) * units / n);
      EXPECT_EQ(StepsOf(ring), size_t(2 * (n - 1)));
      if ((n & (n - 1)) != 0) continue;
      const size_t log = n == 2 ? 1 : n == 4 ? 2 : 3;
      const Plan halving = AllreduceHalving({n, r, units, 100}), doubling = AllreduceDoubling({n, r, units, 100});
      EXPECT_EQ(UnitsSent(halving), 2 * (n - 1) * units / n);
      EXPECT_EQ(StepsOf(halving), 2 * log);
      EXPECT_EQ(UnitsSent(doubling), log * units);
      EXPECT_EQ(StepsOf(doubling), log);
    }
  }
}

TEST(schedule_choice_follows_size_and_number) {
  EXPECT(ChooseAllreduce(2, 4) == AllreducePlan::kDoubling);
  EXPECT(ChooseAllreduce(8, 4) == AllreducePlan::kDoubling);
  EXPECT(ChooseAllreduce(64, 1024) == AllreducePlan::kDoubling);
  EXPECT(ChooseAllreduce(64, 1 << 20) == AllreducePlan::kHalving);
  EXPECT(ChooseAllreduce(8, 500 << 10) == AllreducePlan::kHalving);
  EXPECT(ChooseAllreduce(8, 64 << 20) == AllreducePlan::kRing);
  EXPECT(ChooseAllreduce(3, 64 << 20) == AllreducePlan::kRing);
  // Flows that share a link: fewer bytes win earlier over fewer messages.
  EXPECT(ChooseAllreduce(64, 64 << 10) == AllreducePlan::kDoubling);
  EXPECT(ChooseAllreduce(64, 64 << 10, 16) == AllreducePlan::kHalving);
  EXPECT(ChooseAllreduce(64, 4, 16) == AllreducePlan::kDoubling);
}

TEST(schedule_allgather_delivers_every_block) {
  for (const bool bruck : {false, true}) {
    for (int n = 2; n <= 9; ++n) {
      std::vector<size_t> sizes;  // by position
      for (int r = 0; r < n; ++r) sizes.push_back(r % 3 == 1 ? 0 : 2 * r + 1);
      std::vector<Side> sides(n);
      std::vector<std::vector<size_t>> starts(n, {0});
      for (int r = 0; r < n; ++r) {
        for (int k = 0; k < n; ++k) starts[r].push_back(starts[r].back() + sizes[(r + k) % n]);
        const Shape shape{n, r, starts[r].back(), 2};
        sides[r].plan = bruck ? AllgatherBruck(shape, starts[r]) : AllgatherRing(shape, starts[r]);
        sides[r].output.assign(starts[r].back(), "?");
        for (size_t u = 0; u < sizes[r]; ++u) sides[r].output[u] = std::to_string(r) + "." + std::to_string(u);
        if (!bruck) EXPECT_EQ(UnitsSent(sides[r].plan), starts[r].back() - sizes[(r + 1) % n]);
        EXPECT(StepsOf(sides[r].plan) <= size_t(bruck ? (n <= 2 ? 1 : n <= 4 ? 2 : n <= 8 ? 3 : 4) : n - 1));
      }
      EXPECT(Simulate(&sides));
      for (int r = 0; r < n; ++r) {
        for (int k = 0; k < n; ++k) {
          const int owner = (r + k) % n;
          for (size_t u = 0; u < sizes[owner]; ++u)
            EXPECT_EQ(sides[r].output[starts[r][k] + u], std::to_string(owner) + "." + std::to_string(u));
        }
      }
    }
  }
}

TEST(schedule_broadcast_reaches_all_once) {
  for (const bool chain : {false, true}) {
    for (int n = 2; n <= 9; ++n) {
      for (int root = 0; root < n; ++root) {
        std::vector<Side> sides(n);
        for (int r = 0; r < n; ++r) {
          const Shape shape{n, r, 10, 3};
          sides[r].plan = chain ? BroadcastChain(shape, root) : BroadcastTree(shape, root);
          EXPECT(SortedBySteps(sides[r].plan));
          sides[r].input.assign(10, r == root ? "x" : "?");
          sides[r].output.assign(10, "?");
          size_t received = 0;
          for (const Transfer& t : sides[r].plan.receives) received += t.range.size();
          EXPECT_EQ(received, size_t(r == root ? 0 : 10));
          if (chain) EXPECT(UnitsSent(sides[r].plan) <= 10);
        }
        EXPECT(Simulate(&sides));
        for (int r = 0; r < n; ++r) {
          if (r != root) EXPECT(sides[r].output == Vector(10, "x"));
        }
      }
    }
  }
}

// The last position must not wait for much more than the bytes of the vector; latency decides over small ones.
TEST(schedule_long_chains_have_short_segments) {
  const auto plan_of = [](int n, int me, size_t bytes) { return PlanBroadcast(ShapeOf(n, me, bytes, 1), 0, 1, 16); };
  const Plan large = plan_of(64, 63, 4 << 20);
  EXPECT_EQ(large.sends.size(), size_t{0});
  for (const Transfer& t : large.receives) {
    EXPECT_EQ(t.peer, 62);
    EXPECT(t.range.size() <= (4 << 20) / (4 * 64));
  }
  EXPECT_EQ(plan_of(64, 0, 4 << 20).sends.back().peer, 1);
  EXPECT_EQ(plan_of(64, 0, 4 << 10).sends.size(), size_t{6});
  EXPECT_EQ(plan_of(3, 0, 64 << 20).sends.front().range.size(), kSegmentBytes);
  std::vector<Side> sides(9);
  for (int r = 0; r < 9; ++r) {
    sides[r].plan = PlanBroadcast(ShapeOf(9, r, 300, 1024), 2, 1024);
    sides[r].input.assign(300, r == 2 ? "x" : "?");
    sides[r].output.assign(300, "?");
  }
  EXPECT(Simulate(&sides));
  for (int r = 0; r < 9; ++r) {
    if (r != 2) EXPECT(sides[r].output == Vector(300, "x"));
  }
}

TEST(schedule_pairwise_exchange_and_dissemination) {
  for (int n = 2; n <= 9; ++n) {
    std::vector<Side> sides(n), barrier(n);
    const auto size = [n](int from, int to) { return size_t((from * 5 + to * 3) % n); };
    for (int r = 0; r < n; ++r) {
      std::vector<Range> sends, receives;
      size_t out = 0, in = 0;
      for (int p = 0; p < n; ++p) {
        sends.push_back({out, out + size(r, p)});
        receives.push_back({in, in + size(p, r)});
        out += size(r, p);
        in += size(p, r);
        for (size_t u = 0; u < size(r, p); ++u) sides[r].input.push_back(std::to_string(r) + ">" + std::to_string(p));
      }
      sides[r].output.assign(in, "?");
      sides[r].plan = PairwiseExchange({n, r, out, 1}, sends, receives);
      barrier[r].plan = Dissemination({n, r, 1, 1});
      barrier[r].input = barrier[r].output = {"x"};
    }
    EXPECT(Simulate(&sides));
    EXPECT(Simulate(&barrier));
    for (int r = 0; r < n; ++r) {
      size_t at = 0;
      for (int p = 0; p < n; ++p) {
        for (size_t u = 0; u < size(p, r); ++u, ++at) {
          if (p != r) EXPECT_EQ(sides[r].output[at], std::to_string(p) + ">" + std::to_string(r));
        }
      }
    }
  }
}

// Reference for "who has heard of whom": closes the send/receive relation of the plans in step order.
TEST(schedule_dissemination_hears_of_everybody) {
  for (int n = 2; n <= 17; ++n) {
    std::vector<std::set<int>> heard(n);
    std::vector<Plan> plans;
    for (int r = 0; r < n; ++r) {
      heard[r] = {r};
      plans.push_back(Dissemination({n, r, 1, 1}));
    }
    for (size_t step = 0; step < plans[0].sends.size(); ++step) {
      const std::vector<std::set<int>> before = heard;
      for (int r = 0; r < n; ++r) heard[plans[r].sends[step].peer].insert(before[r].begin(), before[r].end());
    }
    for (int r = 0; r < n; ++r) EXPECT_EQ(heard[r].size(), size_t(n));
  }
}

TEST(schedule_reduce_scatter_combines_everything_once) {
  for (int n = 2; n <= 8; ++n) {
    const size_t units = 3 * n + 1;
    std::vector<Side> sides(n);
    std::vector<Range> parts;
    for (int p = 0; p < n; ++p) parts.push_back(PartOf(units, n, p));
    for (int r = 0; r < n; ++r) {
      sides[r].input.assign(units, std::to_string(r));
      sides[r].output.assign(parts[r].size(), "?");
      sides[r].plan = PairwiseReduce({n, r, units, 2}, parts);
      EXPECT_EQ(UnitsSent(sides[r].plan), units - parts[r].size());
    }
    EXPECT(Simulate(&sides));
    for (int r = 0; r < n; ++r) {
      for (const Value& v : sides[r].output) {
        for (int m = 0; m < n; ++m)
          EXPECT(v.find(std::to_string(m)) != std::string::npos &&
                 v.find(std::to_string(m)) == v.rfind(std::to_string(m)));
        EXPECT_EQ(v.rfind('!'), size_t{0});
      }
    }
  }
}

}  // namespace
}  // namespace hvd::test::collective_channels_schedule
