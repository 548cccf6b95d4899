// Random programs on random trees with random delivery (each link keeps its order). Every rank runs the same list of
// operations, in its own order, some wrong on purpose; checked: one log for all, everything comes to its expected end
// on every rank, same error everywhere.
#include <algorithm>
#include <cstdio>
#include <random>
#include <set>

#include "native/negotiation/cluster.h"
#include "native/negotiation/random_trees.h"
#include "native/negotiation/told.h"
#include "negotiation/values/rank_set.h"

namespace hvd::test::negotiation_random {

using namespace hvd::negotiation;
namespace {

enum class Fate { kRuns, kFails };

// One submission: a tensor or a group, in one process set. What each member passes may differ.
struct Op {
  int epoch = 0;
  int set_slot = 0;  // which of the epoch's sets; 0 = all ranks
  std::vector<int> members;
  std::set<std::string> names;                // in any member's request
  std::map<int, std::vector<Request>> sends;  // members that submit; the others have joined, or refuse
  std::set<int> refuses;
  Fate fate = Fate::kRuns;
};

struct Program {
  int ranks = 0, epochs = 0;
  std::vector<Op> ops;                               // in an order that keeps equal names apart
  std::vector<std::vector<std::vector<int>>> added;  // per epoch: sets added at its start, removed at its end
  bool joins = false;
};

Request RandomTensor(Random* rng, const std::string& name, bool allreduce) {
  Request q = test::Tensor(name, {1 + Pick(rng, 2), 2});
  if (!allreduce) q.type = static_cast<OpType>(Pick(rng, 6));
  if (q.type == OpType::kAllreduce && Pick(rng, 4) == 0) q.prescale = 0.5;
  return q;
}

void MakeGroup(std::vector<Request>* group) {
  if (group->size() < 2) return;
  std::vector<std::string> names;
  for (const Request& q : *group) names.push_back(q.name);
  for (size_t i = 0; i < group->size(); ++i) {
    (*group)[i].group_hash = GroupHash(names);
    (*group)[i].group_size = static_cast<int32_t>(group->size());
    (*group)[i].group_index = static_cast<int32_t>(i);
  }
}

// Something goes wrong on some members.
void Spoil(Random* rng, Op* op) {
  const int victim = op->members[Pick(rng, static_cast<int>(op->members.size()))];
  auto it = op->sends.find(victim);
  if (it == op->sends.end() || op->sends.size() < 2) return;
  op->fate = Fate::kFails;
  std::vector<Request>& group = it->second;
  const int kind = Pick(rng, group.size() > 1 ? 4 : 2);
  if (kind == 0) {
    group[0].dtype = DType::kInt64;
  } else if (kind == 1) {
    op->sends.erase(victim);
    op->refuses.insert(victim);
  } else if (kind == 2) {
    std::swap(group[0], group[1]);
    MakeGroup(&group);
  } else {
    group.back().name += ".other";
    MakeGroup(&group);
    op->names.insert(group.back().name);
  }
}

Op RandomOp(Random* rng, const Program& p, int epoch, bool tail) {
  Op op;
  op.epoch = epoch;
  op.set_slot = tail ? 0 : Pick(rng, 1 + static_cast<int>(p.added[epoch].size()));
  if (op.set_slot > 0) {
    op.members = p.added[epoch][op.set_slot - 1];
  } else {
    for (int r = 0; r < p.ranks; ++r) op.members.push_back(r);
  }
  std::vector<Request> group;
  const int n = Pick(rng, 4) == 0 ? 2 + Pick(rng, 2) : 1;
  const int first = Pick(rng, 6);
  for (int i = 0; i < n; ++i) {
    const std::string name(1, static_cast<char>('a' + first + i));
    group.push_back(RandomTensor(rng, name, n > 1));
    group.back().transient = n == 1 && Pick(rng, 10) == 0;
    op.names.insert(name);
  }
  MakeGroup(&group);
  for (int r : op.members) op.sends[r] = group;
  if (Pick(rng, 6) == 0) Spoil(rng, &op);
  return op;
}

Program RandomProgram(Random* rng) {
  Program p;
  p.ranks = 1 + Pick(rng, 9);
  p.epochs = 1 + Pick(rng, 4);
  p.joins = Pick(rng, 2) == 0;
  for (int e = 0; e < p.epochs; ++e) {
    p.added.emplace_back();
    for (int s = Pick(rng, 3); s > 0; --s) {
      std::vector<int> ranks;
      for (int r = 0; r < p.ranks; ++r) {
        if (Pick(rng, 2) == 0) ranks.push_back(r);
      }
      const bool known = std::find(p.added[e].begin(), p.added[e].end(), ranks) != p.added[e].end();
      if (!ranks.empty() && static_cast<int>(ranks.size()) < p.ranks && !known) p.added[e].push_back(ranks);
    }
    for (int i = Pick(rng, 14); i > 0; --i) p.ops.push_back(RandomOp(rng, p, e, false));
    if (!p.joins) continue;
    std::set<int> working;
    for (int r = 0; r < p.ranks; ++r) working.insert(r);
    for (int i = Pick(rng, 6); i > 0 && !working.empty(); --i) {  // fewer and fewer ranks have data left
      Op op = RandomOp(rng, p, e, true);
      for (int r = 0; r < p.ranks; ++r) {
        if (working.count(r) && Pick(rng, 4) == 0) working.erase(r);
        if (working.count(r)) continue;
        op.sends.erase(r);
        op.refuses.erase(r);
      }
      if (op.sends.empty()) break;
      const bool all_allreduce = std::all_of(op.sends.begin(), op.sends.end(), [](const auto& s) {
        return std::all_of(s.second.begin(), s.second.end(),
                           [](const Request& q) { return q.type == OpType::kAllreduce; });
      });
      // A spoiled operation may have lost its victim, and a whole one needs everybody unless it is an allreduce: settle
      // the fate anew.
      bool same = op.refuses.empty();
      for (const auto& [rank, group] : op.sends) {
        same &= group.size() == op.sends.begin()->second.size() &&
                group[0].dtype == op.sends.begin()->second[0].dtype &&
                group[0].group_hash == op.sends.begin()->second[0].group_hash;
      }
      const bool everybody = op.sends.size() == op.members.size();
      op.fate = same && (everybody || all_allreduce) ? Fate::kRuns : Fate::kFails;
      p.ops.push_back(std::move(op));
    }
  }
  return p;
}

// Runs a program. A rank goes through its epochs: add the sets, submit everything in an order of its own, join, remove
// the sets, wait.
class Run {
 public:
  Run(Program program, Random* rng, bool direct)
      : p_(std::move(program)),
        rng_(rng),
        tree_(direct ? test::RandomHosts(rng, p_.ranks) : HostsTree{test::RandomTree(rng, p_.ranks), {}}),
        cluster_(tree_.parent, [&](NodeConfig* c) { Tweak(c); }) {
    states_.resize(p_.ranks);
    ended_.resize(p_.ops.size());
    for (State& s : states_) {
      s.submitted.resize(p_.ops.size(), false);
      s.pending.resize(p_.ops.size());
    }
  }

  void Go() {
    for (int idle = 0; idle < 3;) {  // until all are through and nothing moves, or everybody is stuck
      bool moved = false;
      for (int i = 0; i < 20; ++i) moved |= Step();
      if (!moved) moved = Everything();
      idle = moved ? 0 : idle + 1;
      if (failed_) return;
    }
    Check();
  }

 private:
  struct State {
    int epoch = 0;
    enum { kAdding, kWorking, kJoining, kRemoving, kLeaving, kLeft } phase = kAdding;
    bool asked = false;              // the sets of this phase, or the join, have been asked for
    int answers = 0;                 // of this phase
    std::vector<int> set_ids = {0};  // per slot
    std::vector<char> submitted;
    std::vector<std::set<std::string>> pending;  // per operation: names in flight
    uint64_t last_seq = 0;
    int64_t threshold = -1;  // of the last change
  };

  void Tweak(NodeConfig* c) {
    if (c->rank == 0) {
      capacity_ = std::vector<int>{0, 1, 3, 1024}[Pick(rng_, 4)];
      threshold_ = std::vector<int64_t>{0, 40, 1 << 20}[Pick(rng_, 3)];
      alone_ = Pick(rng_, 2) == 0;
    }
    c->leaders = tree_.leaders;
    c->cache_capacity = capacity_;
    c->fusion_threshold_bytes = threshold_;
    c->disable_group_fusion = alone_;
  }

  static uint64_t Ticket(size_t op, size_t index) { return 1 + op * 8 + index; }

  bool Step() {
    const int r = Pick(rng_, p_.ranks);
    switch (Pick(rng_, 4)) {
      case 0:
        return Advance(r);
      case 1:
        if (Pick(rng_, 8) == 0)
          cluster_.nodes[0].ChangeParameters({.fusion_threshold_bytes = Pick(rng_, 100)}, cluster_.now);
        cluster_.nodes[0].Flush(cluster_.now, Pick(rng_, 3));
        Drain(0);
        return false;
      default: {
        if (cluster_.links.empty()) return false;
        auto it = std::next(cluster_.links.begin(), Pick(rng_, static_cast<int>(cluster_.links.size())));
        const auto [from, to] = it->first;
        const bool moved = cluster_.Deliver(from, to);
        if (Pick(rng_, 2) == 0) Drain(to);
        return moved;
      }
    }
  }
  bool Everything() {
    bool moved = false;
    for (int r = 0; r < p_.ranks; ++r) {
      moved |= Advance(r);
      moved |= cluster_.nodes[r].HasOutgoing() || cluster_.nodes[r].wants_flush();
      cluster_.nodes[r].Flush(cluster_.now, 0);
      Drain(r);
    }
    for (auto& [link, queue] : cluster_.links) {
      while (!queue.empty()) moved |= cluster_.Deliver(link.first, link.second);
    }
    return moved;
  }

  // The next thing that rank r can do.
  bool Advance(int r) {
    State& s = states_[r];
    if (s.phase == State::kLeft) return false;
    Node& node = cluster_.nodes[r];
    bool moved = true;
    if (s.epoch == p_.epochs) {
      if (!AllDone()) return false;
      node.Goodbye(cluster_.now);
      s.phase = State::kLeft;
    } else if (s.phase == State::kWorking) {
      moved = SubmitSomething(r);
    } else if (!s.asked) {
      s.asked = true;
      if (s.phase == State::kAdding) {
        for (const auto& ranks : p_.added[s.epoch]) node.AddSet(ranks, 7, cluster_.now);
      } else if (s.phase == State::kJoining && p_.joins) {
        node.Join(8, cluster_.now);
      } else if (s.phase == State::kRemoving) {
        for (size_t i = 1; i < s.set_ids.size(); ++i) node.RemoveSet(s.set_ids[i], 9, cluster_.now);
      }
    } else {
      moved = NextPhase(&s);
    }
    Drain(r);
    return moved;
  }

  bool AllDone() const {
    return std::all_of(states_.begin(), states_.end(), [&](const State& s) {
      return s.epoch == p_.epochs &&
             std::all_of(s.pending.begin(), s.pending.end(), [](const auto& names) { return names.empty(); });
    });
  }

  bool NextPhase(State* s) {
    const int sets = static_cast<int>(p_.added[s->epoch].size());
    const int wanted = s->phase == State::kJoining ? (p_.joins ? 1 : 0) : sets;
    if (s->answers < wanted) return false;
    s->answers = 0;
    s->asked = false;
    if (s->phase == State::kAdding) {
      s->phase = State::kWorking;
    } else if (s->phase == State::kJoining) {
      s->phase = State::kRemoving;
    } else {
      s->set_ids = {0};
      ++s->epoch;
      s->phase = State::kAdding;
    }
    return true;
  }

  bool SubmitSomething(int r) {
    State& s = states_[r];
    std::set<std::pair<int, std::string>> taken;  // by earlier operations that are not over
    std::vector<size_t> can;
    bool left = false;
    for (size_t k = 0; k < p_.ops.size(); ++k) {
      const Op& op = p_.ops[k];
      if (op.epoch < s.epoch && op.set_slot == 0) {
        for (const std::string& n : op.names) {
          if (!s.pending[k].empty()) taken.insert({0, n});
        }
      }
      if (op.epoch != s.epoch) continue;
      const bool part = op.sends.count(r) || op.refuses.count(r);
      bool free = true;
      for (const std::string& n : op.names) free &= !taken.count({op.set_slot, n});
      if (part && !s.submitted[k]) {
        left = true;
        if (free) can.push_back(k);
        for (const std::string& n : op.names) taken.insert({op.set_slot, n});
      }
      // All of its names, also those that only others use: this rank cannot tell them apart from the next operation's.
      for (const std::string& n : op.names) {
        if (!s.pending[k].empty()) taken.insert({op.set_slot, n});
      }
    }
    if (!left) {
      s.phase = State::kJoining;
      return true;
    }
    if (can.empty()) return false;
    SubmitOp(r, can[Pick(rng_, static_cast<int>(can.size()))]);
    return true;
  }

  void SubmitOp(int r, size_t k) {
    if (std::getenv("HVD_NEGOTIATION_TRACE")) {
      std::string names;
      for (const auto& [who, group] : p_.ops[k].sends) {
        if (who != r) continue;
        for (const Request& q : group) names += " " + q.name;
      }
      std::cerr << "rank " << r << (p_.ops[k].refuses.count(r) ? " refuses" : " submits") << " op " << k << " slot "
                << p_.ops[k].set_slot << names << std::endl;
    }
    State& s = states_[r];
    const Op& op = p_.ops[k];
    s.submitted[k] = true;
    const int set = s.set_ids[op.set_slot];
    if (op.refuses.count(r)) {
      std::vector<Request> group = op.sends.begin()->second;
      for (Request& q : group) q.process_set = set;
      cluster_.nodes[r].Refuse(group, "no.", cluster_.now);
      return;
    }
    std::vector<Request> group = op.sends.at(r);
    for (size_t i = 0; i < group.size(); ++i) {
      group[i].process_set = set;
      group[i].ticket = Ticket(k, i);
      if (k % 3 > 0 || Pick(rng_, 2) > 0)
        group[i].payload = std::make_shared<test::Bytes>(Brought(r, k, group[i].name));
      s.pending[k].insert(group[i].name);
    }
    cluster_.nodes[r].Submit(group, cluster_.now);
  }

  void Drain(int r) {
    cluster_.Collect(r);
    for (const Action& a : cluster_.done[r]) Take(r, a);
    cluster_.done[r].clear();
  }

  void Take(int r, const Action& action) {
    if (std::getenv("HVD_NEGOTIATION_TRACE")) {
      std::cerr << "rank " << r << " action " << action.index() << " ticket "
                << std::visit([](const auto& a) { return Told(a); }, action) << std::endl;
    }
    std::visit([&](const auto& a) { Obey(r, a); }, action);
  }
  void Obey(int r, const EntryFailed& a) { Over(r, a.ticket, a.name, "error: " + a.why.message(), Fate::kFails); }
  void Obey(int r, const SetAdded& a) {
    states_[r].set_ids.push_back(a.process_set);
    ++states_[r].answers;
  }
  void Obey(int r, const SetRemoved&) { ++states_[r].answers; }
  void Obey(int r, const AllJoined&) { ++states_[r].answers; }
  void Obey(int r, const RankLeft& a) {
    if (a.rank == r) left_.Add(r);
  }
  void Obey(int, const SetChangeFailed& a) { Fails(true, "unexpected: " + a.why.message()); }
  void Obey(int, const Aborted& a) { Fails(true, "unexpected: " + a.why.message()); }
  void Obey(int, const LogLine&) {}
  void Obey(int, const Stalled&) {}
  void Obey(int, const TraceOrder&) {}
  void Obey(int, const TracePiece&) {}
  void Obey(int, const ClockQuestion&) {}
  void Obey(int, const ClockAnswer&) {}
  void Obey(int r, const ParametersChanged& a) { states_[r].threshold = a.parameters.fusion_threshold_bytes; }
  void Obey(int r, const ExecuteBatch& a) {
    Fails(a.seq <= states_[r].last_seq, "sequence numbers do not rise");
    states_[r].last_seq = a.seq;
    std::string text = std::to_string(a.process_set) + " by " + std::to_string(states_[r].threshold) + ":";
    for (const Entry& e : a.entries) {
      text += " " + e.request->name;
      if (e.ticket == 0) {
        Fails(!p_.joins || states_[r].phase != State::kJoining, "executed without an entry");
        continue;
      }
      Over(r, e.ticket, e.request->name, "run", Fate::kRuns);
    }
    auto [it, fresh] = log_.try_emplace(a.seq, text);
    Fails(!fresh && it->second != text, "two logs: " + it->second + " / " + text);
  }

  // What a rank brings to an operation: something that no other one has.
  static test::Bytes Brought(int rank, size_t k, const std::string& name) {
    const std::string text = std::to_string(rank) + " " + std::to_string(k) + " " + name;
    const auto* const first = reinterpret_cast<const std::byte*>(text.data());
    return {first, first + (rank % 3 == 0 ? 0 : text.size())};
  }
  void Obey(int r, const Exchanged& a) {
    const std::string& name = a.entry.request->name;
    const size_t k = (a.entry.ticket - 1) / 8;
    Fails(k >= p_.ops.size(), "payloads without an entry");
    if (failed_) return;
    std::vector<int> from;
    for (const Payload& p : a.payloads) {
      from.push_back(p.rank);
      Fails(p.bytes != Brought(p.rank, k, name), "rank " + std::to_string(p.rank) + " brought something else");
    }
    Fails(from != p_.ops[k].members, "payloads of others than the members");
    exchanges_ += r == p_.ops[k].members[0];
    Over(r, a.entry.ticket, name, "run", Fate::kRuns);
  }

  void Over(int r, uint64_t ticket, const std::string& name, const std::string& how, Fate fate) {
    const size_t k = (ticket - 1) / 8;
    State& s = states_[r];
    Fails(k >= p_.ops.size() || s.pending[k].erase(name) != 1, "'" + name + "' ended twice or never began");
    if (failed_) return;
    Fails(fate != p_.ops[k].fate, "'" + name + "' came to the wrong end: " + how);
    if (fate == Fate::kFails && p_.ops[k].sends.begin()->second.size() > 1)
      return;  // which member tells depends on the order
    auto [it, fresh] = ended_[k].try_emplace(name, how);
    Fails(!fresh && it->second != how, "two ends: " + it->second + " / " + how);
  }

  void Check() {
    for (int r = 0; r < p_.ranks; ++r) {
      const State& s = states_[r];
      Fails(s.phase != State::kLeft, "rank " + std::to_string(r) + " hangs in epoch " + std::to_string(s.epoch) +
                                         " phase " + std::to_string(s.phase));
      for (const auto& names : s.pending) Fails(!names.empty(), "something is left pending");
      Fails(s.phase == State::kLeft && !left_.Contains(r), "no answer to a goodbye");
      Fails(cluster_.nodes[r].next_deadline() < 1e300, "a node still waits for something");
    }
  }

  void Fails(bool bad, const std::string& what) {
    if (!bad || failed_) return;
    failed_ = true;
    test::Fail(__FILE__, __LINE__, what);
  }

 public:
  bool failed() const { return failed_; }
  int exchanges() const { return exchanges_; }

 private:
  Program p_;
  Random* rng_;
  int capacity_ = 0;
  int64_t threshold_ = 0;
  bool alone_ = false;
  const HostsTree tree_;
  Cluster cluster_;
  std::vector<State> states_;
  std::map<uint64_t, std::string> log_;
  std::vector<std::map<std::string, std::string>> ended_;
  RankSet left_;
  int exchanges_ = 0;  // operations whose payloads made a batch needless
  bool failed_ = false;
};

void RunMany(bool direct) {
  const char* seeds = std::getenv("HVD_NEGOTIATION_SEEDS");
  const char* first = std::getenv("HVD_NEGOTIATION_FIRST_SEED");
  const int n = seeds ? std::atoi(seeds) : test::kSanitizer ? 150 : 1500;
  const int from = first ? std::atoi(first) : 0;
  int exchanges = 0;
  for (int seed = from; seed < from + n; ++seed) {
    Random rng(static_cast<uint32_t>(seed));
    Run run(RandomProgram(&rng), &rng, direct);
    run.Go();
    exchanges += run.exchanges();
    if (run.failed()) return test::Fail(__FILE__, __LINE__, "seed " + std::to_string(seed));
  }
  if (seeds == nullptr) EXPECT(exchanges > n / 15);
  std::printf("  %d operations without a batch\n", exchanges);
}

TEST(negotiation_random_programs) { RunMany(false); }
TEST(negotiation_random_programs_on_hosts_that_exchange_directly) { RunMany(true); }

}  // namespace
}  // namespace hvd::test::negotiation_random
