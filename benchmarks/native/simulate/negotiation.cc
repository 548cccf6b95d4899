#include "negotiation.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "negotiation/node.h"
#include "negotiation/values/tree.h"

namespace hvd::simulate {
namespace {

using negotiation::Action;
using negotiation::ExecuteBatch;
using negotiation::Node;
using negotiation::NodeConfig;
using negotiation::Request;

constexpr int kWarmSteps = 3, kSteps = 9;
// Of the first step, in which whole requests travel. All ranks submit the same ones in a burst, so that few are kept.
constexpr int kFirstBursts = 20;
constexpr int kMany = 4096, kStepsOfMany = 3;

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Simulation {
 public:
  explicit Simulation(const Load& load)
      : load_(load), ranks_(load.layout.size()), parent_(TreeOf(load.layout)), nodes_(ranks_), rng_(1) {
    for (int r = 0; r < ranks_; ++r) {
      NodeConfig c;
      c.rank = r;
      c.size = ranks_;
      c.parent = parent_;
      c.cache_capacity = load.capacity;
      c.fusion_threshold_bytes = kFusionBytes;
      nodes_[r] = std::make_unique<Simulated>(std::move(c));
    }
    for (int i = 0; i < load.tensors; ++i) {
      Request q;
      q.name = "gradient/layer" + std::to_string(i / 4) + ".block.conv.weight." + std::to_string(i);
      q.shape = {64, 64, 3};
      q.ticket = static_cast<uint64_t>(i) + 1;
      requests_.push_back(std::move(q));
    }
  }

  NegotiationCost Run() {
    std::vector<double> busiest, root, mean;
    const int steps = kWarmSteps + (ranks_ > kMany ? kStepsOfMany : kSteps);
    for (int step = 0; step < steps; ++step) {
      count_ = {};
      executed_ = 0;
      for (auto& n : nodes_) n->cpu_s = 0;
      Step(step == 0 ? kFirstBursts : load_.bursts, step > 0);
      if (executed_ != load_.tensors) std::fprintf(stderr, "%d of %d tensors were agreed\n", executed_, load_.tensors);
      if (step < kWarmSteps) continue;
      double most = 0, sum = 0;
      for (const auto& n : nodes_) {
        most = std::max(most, n->cpu_s);
        sum += n->cpu_s;
      }
      busiest.push_back(most);
      root.push_back(nodes_[0]->cpu_s);
      mean.push_back(sum / ranks_);
    }
    count_.busiest_s = Median(busiest);
    count_.root_s = Median(root);
    count_.mean_s = Median(mean);
    count_.depth = negotiation::TreeDepth(parent_);
    return count_;
  }

 private:
  struct Simulated {
    explicit Simulated(NodeConfig c) : node(std::move(c)) {}
    Node node;
    double cpu_s = 0;
    std::vector<std::pair<int, std::vector<std::byte>>> inbox;
  };

  void Step(int bursts, bool shuffled) {
    std::vector<std::vector<uint16_t>> orders(ranks_);
    for (int r = 0; r < ranks_; ++r) {
      orders[r].resize(load_.tensors);
      for (int i = 0; i < load_.tensors; ++i) orders[r][i] = static_cast<uint16_t>(i);
      if (shuffled) std::shuffle(orders[r].begin(), orders[r].end(), rng_);
    }
    for (int b = 0; b < bursts; ++b) {
      const int from = load_.tensors * b / bursts, to = load_.tensors * (b + 1) / bursts;
      for (int r = ranks_ - 1; r >= 0; --r) {
        const double start = CpuSeconds();
        for (int i = from; i < to; ++i) nodes_[r]->node.Submit(std::span(&requests_[orders[r][i]], 1), 0);
        nodes_[r]->cpu_s += CpuSeconds() - start;
      }
      Settle();
    }
  }

  // Deepest ranks first: each node hears from all its children before it speaks, as it does when all are equally fast.
  void Settle() {
    for (int r = ranks_ - 1; r >= 0; --r) Serve(r);
    for (int r = 1; r < ranks_; ++r) Serve(r);
  }

  void Serve(int r) {
    Simulated& s = *nodes_[r];
    const double start = CpuSeconds();
    for (const auto& [from, frame] : s.inbox) {
      if (Status status = s.node.Receive(from, frame, 0); !status.ok())
        std::fprintf(stderr, "%s\n", status.message().c_str());
    }
    s.node.Flush(0, 0);
    double copying = 0;
    s.node.TakeOutgoing([&](int to, std::span<const std::byte> frame) {
      const double copy = CpuSeconds();  // a transport's work, not the node's
      Deliver(r, to, frame);
      copying += CpuSeconds() - copy;
    });
    if (r == 0) {
      for (const Action& a : s.node.actions()) {
        if (const auto* batch = std::get_if<ExecuteBatch>(&a)) executed_ += static_cast<int>(batch->entries.size());
      }
    }
    s.node.actions().clear();
    s.cpu_s += CpuSeconds() - start - copying;
    s.inbox.clear();
  }

  void Deliver(int from, int to, std::span<const std::byte> frame) {
    ++count_.frames;
    if (to == 0) {
      ++count_.root_frames;
      count_.root_bytes += static_cast<long>(frame.size());
    } else if (from == 0 && to == 1) {
      count_.down_bytes += static_cast<long>(frame.size());
    }
    nodes_[to]->inbox.emplace_back(from, std::vector<std::byte>(frame.begin(), frame.end()));
  }

  const Load load_;
  const int ranks_;
  const std::vector<int> parent_;
  std::vector<std::unique_ptr<Simulated>> nodes_;
  std::mt19937 rng_;
  std::vector<Request> requests_;
  NegotiationCost count_;
  int executed_ = 0;
};

}  // namespace

std::vector<int> TreeOf(const Layout& layout) {
  std::vector<int> host(layout.size());
  for (int r = 0; r < layout.size(); ++r) host[r] = layout.host_of(r);
  return negotiation::BuildTree(host);
}

NegotiationCost Negotiate(const Load& load) { return Simulation(load).Run(); }

double AgreementSeconds(const Layout& layout, const Costs& costs) {
  const std::vector<int> parent = TreeOf(layout);
  const int n = layout.size();
  const auto edge = [&](int r) { return layout.host_of(r) == layout.host_of(parent[r]) ? costs.local_s : costs.hop_s; };
  std::vector<double> up(n, 0), down(n, 0), turn(n, 0);
  for (int r = n - 1; r > 0; --r) {  // parent[r] < r
    up[parent[r]] = std::max(up[parent[r]], up[r] + edge(r)) + costs.node_s;
  }
  for (int r = 1; r < n; ++r) {
    turn[parent[r]] += costs.node_s;
    down[r] = down[parent[r]] + turn[parent[r]] + edge(r);
  }
  return up[0] + *std::max_element(down.begin(), down.end());
}

}  // namespace hvd::simulate
