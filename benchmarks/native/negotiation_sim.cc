// Simulates the negotiation of many ranks with the real Node: what one step of `tensors` cached tensors costs the
// busiest node, how many frames and bytes reach the root, and how many hops an agreement takes. No sockets, no threads;
// CPU time is this thread's, per node.
//
//   negotiation_sim [tensors[/capacity]] [bursts] [hop_us] [ranks ...]       default: 1000 1 20 64 1024 16384
//
// capacity: names that the negotiation remembers; all of them unless given.
// Every rank submits all tensors once per step, each in its own shuffled order, in `bursts` portions; after each
// portion frames travel until nothing moves. 16 ranks per host, hosts under one another by 16. Above 4096 ranks only
// one leaf per host is a real Node: its frames are delivered once for each of the leaves that it stands for (all ranks
// of a tree level do the same work; leaders and root stay real).
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "negotiation/node.h"
#include "negotiation/tree.h"

namespace hvd::negotiation {
namespace {

constexpr int kRanksPerHost = 16;
constexpr int kFanOut = 16;
constexpr int kWarmSteps = 3, kSteps = 9;
constexpr int kAllReal = 4096;

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Simulated {
  explicit Simulated(NodeConfig c) : node(std::move(c)) {}
  Node node;
  double cpu_s = 0;
  std::vector<std::pair<int, std::vector<std::byte>>> inbox;
};

class Simulation {
 public:
  Simulation(int ranks, int tensors, int capacity, int bursts)
      : ranks_(ranks), tensors_(tensors), bursts_(bursts), rng_(1) {
    std::vector<int> host(ranks);
    for (int r = 0; r < ranks; ++r) host[r] = r / kRanksPerHost;
    parent_ = BuildTree(host, kFanOut);
    nodes_.resize(ranks);
    for (int r = 0; r < ranks; ++r) {
      if (!IsReal(r)) continue;
      NodeConfig c;
      c.rank = r;
      c.size = ranks;
      c.parent = parent_;
      c.cache_capacity = capacity;
      nodes_[r] = std::make_unique<Simulated>(std::move(c));
    }
    for (int i = 0; i < tensors; ++i) {
      Request q;
      q.name = "gradient/layer" + std::to_string(i / 4) + ".block.conv.weight." + std::to_string(i);
      q.shape = {64, 64, 3};
      q.ticket = static_cast<uint64_t>(i) + 1;
      requests_.push_back(std::move(q));
    }
  }

  void Run(double hop_us) {
    std::vector<double> busiest, root, mean;
    for (int step = 0; step < kWarmSteps + kSteps; ++step) {
      frames_at_root_ = bytes_at_root_ = executed_ = 0;
      for (auto& n : nodes_) {
        if (n) n->cpu_s = 0;
      }
      Step();
      if (executed_ != tensors_) std::fprintf(stderr, "only %d of %d tensors were agreed\n", executed_, tensors_);
      if (step < kWarmSteps) continue;
      double most = 0, sum = 0;
      int n_real = 0;
      for (const auto& n : nodes_) {
        if (!n) continue;
        most = std::max(most, n->cpu_s);
        sum += n->cpu_s;
        ++n_real;
      }
      busiest.push_back(most);
      root.push_back(nodes_[0]->cpu_s);
      mean.push_back(sum / n_real);
    }
    auto median_us = [](std::vector<double>& v) {
      std::sort(v.begin(), v.end());
      return 1e6 * v[v.size() / 2];
    };
    const int depth = TreeDepth(parent_);
    const double typical_us = median_us(busiest);
    std::printf("%7d %8d %7d | %9.0f %9.0f %9.0f %9.0f | %8ld %10ld | %5d %10.0f\n", ranks_, tensors_, bursts_,
                typical_us, 1e6 * busiest.front(), median_us(root), median_us(mean), frames_at_root_, bytes_at_root_,
                depth, 2 * depth * hop_us);
    std::fflush(stdout);
  }

 private:
  // The leaves of a host do the same: when there are many, rank 1 of each host stands for all of them.
  bool IsReal(int r) const { return ranks_ <= kAllReal || r % kRanksPerHost <= 1; }

  void Step() {
    std::vector<std::vector<uint16_t>> orders(ranks_);
    for (int r = 0; r < ranks_; ++r) {
      if (!nodes_[r]) continue;
      orders[r].resize(tensors_);
      for (int i = 0; i < tensors_; ++i) orders[r][i] = static_cast<uint16_t>(i);
      std::shuffle(orders[r].begin(), orders[r].end(), rng_);
    }
    for (int b = 0; b < bursts_; ++b) {
      const int from = tensors_ * b / bursts_, to = tensors_ * (b + 1) / bursts_;
      for (int r = ranks_ - 1; r >= 0; --r) {
        if (!nodes_[r]) continue;
        Node& node = nodes_[r]->node;
        const double start = CpuSeconds();
        for (int i = from; i < to; ++i) node.Submit(std::span(&requests_[orders[r][i]], 1), 0);
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
    if (!nodes_[r]) return;
    Simulated& s = *nodes_[r];
    std::vector<std::pair<int, std::vector<std::byte>>> out;
    const double start = CpuSeconds();
    for (const auto& [from, frame] : s.inbox) {
      if (Status status = s.node.Receive(from, frame, 0); !status.ok())
        std::fprintf(stderr, "%s\n", status.message().c_str());
    }
    s.node.Flush(0, 0);
    double copying = 0;
    s.node.TakeOutgoing([&](int to, std::span<const std::byte> frame) {
      const double copy = CpuSeconds();  // a transport's work, not the node's
      Post(r, to, frame);
      copying += CpuSeconds() - copy;
    });
    std::vector<Action>& actions = s.node.actions();
    if (r == 0) {
      for (const Action& a : actions) {
        if (const auto* batch = std::get_if<ExecuteBatch>(&a)) executed_ += static_cast<int>(batch->entries.size());
      }
      for (const auto& in : s.inbox) bytes_at_root_ += static_cast<long>(in.second.size());
      frames_at_root_ += static_cast<long>(s.inbox.size());
    }
    actions.clear();
    s.cpu_s += CpuSeconds() - start - copying;
    s.inbox.clear();
  }

  void Post(int from, int to, std::span<const std::byte> frame) {
    if (!nodes_[to]) return;
    nodes_[to]->inbox.emplace_back(from, std::vector<std::byte>(frame.begin(), frame.end()));
    if (ranks_ <= kAllReal || from % kRanksPerHost != 1 || to != from - 1) return;
    for (int leaf = from + 1; leaf < from - 1 + kRanksPerHost && leaf < ranks_; ++leaf) {
      std::vector<std::byte> copy(frame.begin(), frame.end());
      for (int i = 0; i < 4; ++i)
        copy[2 + i] = static_cast<std::byte>(static_cast<uint32_t>(leaf) >> (8 * i));  // the sender
      nodes_[to]->inbox.emplace_back(leaf, std::move(copy));
    }
  }

  int ranks_, tensors_, bursts_;
  std::mt19937 rng_;
  std::vector<int> parent_;
  std::vector<std::unique_ptr<Simulated>> nodes_;
  std::vector<Request> requests_;
  long frames_at_root_ = 0, bytes_at_root_ = 0;
  int executed_ = 0;
};

}  // namespace
}  // namespace hvd::negotiation

int main(int argc, char** argv) {
  const int tensors = argc > 1 ? std::atoi(argv[1]) : 1000;
  const char* const limit = argc > 1 ? std::strchr(argv[1], '/') : nullptr;
  const int capacity = limit != nullptr ? std::atoi(limit + 1) : tensors + 1;
  const int bursts = argc > 2 ? std::atoi(argv[2]) : 1;
  const double hop_us = argc > 3 ? std::atof(argv[3]) : 20;
  std::vector<int> sizes;
  for (int i = 4; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {64, 1024, 16384};
  if (tensors < 1 || tensors > 65535 || bursts < 1) return 2;
  std::printf("CPU time per node and step in us (its own submissions included); latency = 2 x depth x %.0f us\n",
              hop_us);
  std::printf("%7s %8s %7s | %9s %9s %9s %9s | %8s %10s | %5s %10s\n", "ranks", "tensors", "bursts", "busiest",
              "(best)", "root", "mean", "frames", "bytes", "depth", "latency us");
  for (int n : sizes) hvd::negotiation::Simulation(n, tensors, capacity, bursts).Run(hop_us);
  return 0;
}
