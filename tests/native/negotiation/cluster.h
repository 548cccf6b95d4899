// A cluster of negotiation nodes for tests: real Nodes, links that keep order, a clock that the test moves. Used by
// negotiation_*_test.cc.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "native/harness/harness.h"
#include "negotiation/node.h"

namespace hvd::test {

using Bytes = std::vector<std::byte>;

// Of rank 0, alone, with the settings of a job that changes none.
inline negotiation::NodeConfig PlainConfig() {
  negotiation::NodeConfig c;
  c.cache_capacity = -1;
  c.fusion_threshold_bytes = 128 << 20;
  c.stall_warning_s = 60;
  return c;
}

class Cluster {
 public:
  using Tweak = std::function<void(negotiation::NodeConfig*)>;

  explicit Cluster(std::vector<int> parent, const Tweak& tweak = {}) {
    for (int r = 0; r < static_cast<int>(parent.size()); ++r) {
      negotiation::NodeConfig c = PlainConfig();
      c.rank = r;
      c.size = static_cast<int>(parent.size());
      c.parent = parent;
      c.epoch = 7;
      for (int i = 0; i < c.size; ++i) c.host_of_rank.push_back("host" + std::to_string(i));
      if (tweak) tweak(&c);
      nodes.emplace_back(std::move(c));
    }
    done.resize(nodes.size());
    stopped.resize(nodes.size(), false);
  }
  static std::vector<int> Flat(int n) {
    std::vector<int> parent(n, 0);
    parent[0] = -1;
    return parent;
  }
  static std::vector<int> Chain(int n) {
    std::vector<int> parent(n);
    for (int r = 0; r < n; ++r) parent[r] = r - 1;
    return parent;
  }

  int size() const { return static_cast<int>(nodes.size()); }

  void Collect(int r) {
    if (nodes[r].HasOutgoing()) {
      nodes[r].TakeOutgoing([&](int to, std::span<const std::byte> frame) {
        ++frames;
        bytes += frame.size();
        links[{r, to}].emplace_back(frame.begin(), frame.end());
      });
    }
    for (negotiation::Action& a : nodes[r].actions()) done[r].push_back(std::move(a));
    nodes[r].actions().clear();
  }
  // Delivers the oldest frame of a link; false: there is none.
  bool Deliver(int from, int to) {
    auto it = links.find({from, to});
    if (it == links.end() || it->second.empty() || stopped[to]) return false;
    const Bytes frame = std::move(it->second.front());
    it->second.pop_front();
    EXPECT_OK(nodes[to].Receive(from, frame, now));
    return true;
  }
  // Until nothing moves any more.
  void Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < size(); ++r) {
        if (stopped[r]) continue;
        if (nodes[r].wants_flush()) nodes[r].Flush(now, 0);
        Collect(r);
      }
      for (auto& [link, queue] : links) {
        while (!queue.empty() && !stopped[link.second]) moved |= Deliver(link.first, link.second);
      }
    }
  }
  void TickAll() {
    for (int r = 0; r < size(); ++r) {
      if (!stopped[r]) nodes[r].Tick(now);
    }
    Run();
  }

  // Actions of one kind on a rank.
  template <class Kind>
  std::vector<Kind> Of(int r) const {
    std::vector<Kind> out;
    for (const negotiation::Action& a : done[r]) {
      if (const Kind* what = std::get_if<Kind>(&a)) out.push_back(*what);
    }
    return out;
  }
  template <class Kind>
  int Count(int r) const {
    return static_cast<int>(Of<Kind>(r).size());
  }
  // The names executed by a rank: "a+b, c" = batch {a, b}, then {c}.
  std::string Executed(int r) const {
    std::string out;
    for (const negotiation::ExecuteBatch& a : Of<negotiation::ExecuteBatch>(r)) {
      if (!out.empty()) out += ", ";
      for (size_t i = 0; i < a.entries.size(); ++i) out += (i > 0 ? "+" : "") + a.entries[i].request->name;
    }
    return out;
  }
  std::string FailText(int r) const {
    const std::vector<negotiation::EntryFailed> fails = Of<negotiation::EntryFailed>(r);
    return fails.empty() ? "" : fails.back().why.message();
  }
  void Forget() {
    for (auto& d : done) d.clear();
  }

  std::vector<negotiation::Node> nodes;
  std::vector<std::vector<negotiation::Action>> done;  // per rank
  std::vector<char> stopped;
  std::map<std::pair<int, int>, std::deque<Bytes>> links;
  double now = 100;
  int64_t frames = 0, bytes = 0;
};

inline negotiation::Request Tensor(const std::string& name, std::vector<int64_t> shape = {4},
                                   OpType type = OpType::kAllreduce) {
  negotiation::Request r;
  r.type = type;
  r.name = name;
  r.shape = std::move(shape);
  r.ticket = 1;
  return r;
}

inline std::vector<negotiation::Request> Group(const std::vector<std::string>& names) {
  std::vector<negotiation::Request> group;
  for (const std::string& n : names) {
    negotiation::Request r = Tensor(n);
    r.group_hash = negotiation::GroupHash(names);
    r.group_size = static_cast<int32_t>(names.size());
    r.group_index = static_cast<int32_t>(group.size());
    r.ticket = 10 + group.size();
    group.push_back(r);
  }
  return group;
}

}  // namespace hvd::test
