// The executors of a job in one thread, without negotiation: a test adds the batches of a log to all of them and
// advances them one by one, in any order. Ranks of one host share memory; `link` connects the hosts.
#pragma once

#include <map>

#include "backend/host_backend.h"
#include "engine/run/executor.h"
#include "native/collective/log_items.h"

namespace hvd::test {

class ExecutorWorld {
 public:
  // store_mode: as in hvd_config.
  ExecutorWorld(const std::vector<int>& host_of, Link link, int store_mode = 0) {
    for (size_t r = 0; r < host_of.size(); ++r) ranks_.push_back(std::make_unique<Rank>(store_mode));
    for (int r = 0; r < size(); ++r) {
      engine::Transports& t = ranks_[r]->transports;
      t.rank = r;
      t.host_of_rank = host_of;
      t.local_of_rank.assign(size(), -1);
      t.data.resize(size());
      ranks_[r]->backends.Add(std::make_unique<backend::HostBackend>());
    }
    MakeHosts(host_of);
    for (int a = 0; a < size(); ++a) {
      for (int b = a + 1; b < size(); ++b) {
        auto &at_a = ranks_[a]->transports.data[b], &at_b = ranks_[b]->transports.data[a];
        if (host_of[a] == host_of[b]) {
          at_a = Ring(a, b);
          at_b = Ring(b, a);
        } else {
          std::tie(at_a, at_b) = Connect(link, a, b);
        }
      }
    }
  }
  int size() const { return static_cast<int>(ranks_.size()); }
  backend::Registry& backends(int rank) { return ranks_[rank]->backends; }
  engine::Executor& executor(int rank) { return ranks_[rank]->executor; }

  // Adds a batch to the executor of a member. What it is called: "x<seq>".
  void Add(int rank, const Item& item) {
    Rank& self = *ranks_[rank];
    Part& part = self.parts[item.seq];
    part.memory.resize(item.elems * sizeof(float));
    const int member = MemberOf(item, rank);
    const Bytes input = InputOf(item, member);
    std::copy(input.begin(), input.end(), part.memory.begin());
    auto own = std::make_unique<engine::Submitted>();
    own->process_set = self.SetOf(item.ranks);
    own->type = item.type;
    own->name = "x" + std::to_string(item.seq);
    own->tensor = MakeTensor(part.memory.data(), part.memory.data(), {static_cast<int64_t>(item.elems)});
    if (item.on_device) own->tensor.device = std::make_unique<collective::OnDevice>();
    const int n = static_cast<int>(item.ranks.size());
    for (int m = 0; m < n; ++m)
      own->tensor.splits.push_back(static_cast<int64_t>(collective::shm::BlockOfMember(item.elems, n, m).count));
    own->completion = part.completion;
    negotiation::Request request;
    request.type = item.type;
    request.process_set = own->process_set;
    request.name = own->name;
    request.dtype = DType::kFloat32;
    request.op = ReduceOp::kSum;
    request.shape = own->tensor.shape;
    request.on_device = item.on_device;
    request.root = item.ranks[item.root];
    const uint64_t ticket = own->ticket();
    std::vector<std::unique_ptr<engine::Submitted>> tensors;
    tensors.push_back(std::move(own));
    EXPECT_OK(self.submissions.Add(std::move(tensors), {request}));
    negotiation::ExecuteBatch batch;
    batch.seq = item.seq;
    batch.entries.push_back({std::make_shared<negotiation::Request>(request), ticket});
    self.executor.Add(batch, self.sets.Find(request.process_set), &self.submissions);
  }
  bool Advance(int rank) { return static_cast<bool>(ranks_[rank]->executor.Advance()); }
  // The rank gives up; `dies`: its connections are closed, too.
  void Quit(int rank, bool dies) {
    (void)ranks_[rank]->executor.Cancel();
    if (!dies) return;
    for (auto& channel : ranks_[rank]->transports.data) channel.reset();
  }

  bool Succeeded(int rank, const Item& item) {
    const engine::Completion& c = *ranks_[rank]->parts[item.seq].completion;
    return c.done() && c.status().ok();
  }
  // Of a batch that has succeeded: does the rank hold what it should?
  bool Right(int rank, const Item& item) {
    if (item.type == OpType::kBarrier) return true;
    const collective::Tensor& t = ranks_[rank]->parts[item.seq].completion->results[0].tensor;
    const Bytes expected = Expected(item, MemberOf(item, rank));
    return t.result != nullptr ? ResultIs(t, expected) : Same(t.output, expected);
  }
  // Why the rank gave up by itself; OK: it did not.
  const Status& why(int rank) const { return ranks_[rank]->why; }

 private:
  struct Part {
    Bytes memory;
    std::shared_ptr<engine::Completion> completion = std::make_shared<engine::Completion>(1);
  };
  struct Rank {
    explicit Rank(int store_mode) : sets(&transports, {false, store_mode}) {}

    engine::Transports transports;
    engine::ProcessSets sets;
    engine::Submissions submissions;
    engine::Timeline timeline;
    // By topology, so that hosts take part in two levels.
    engine::Tuning tuning{{.hierarchical_allreduce = -1, .hierarchical_allgather = -1, .torus_allreduce = -1}};
    backend::Registry backends;
    std::map<uint64_t, Part> parts;  // by sequence number
    std::map<std::vector<int>, int> set_ids;
    Status why;
    engine::Executor executor{
        {.backends = &backends, .timeline = &timeline, .transports = &transports, .tuning = &tuning},
        {[](engine::BatchRun& run, const Status& status) {
           engine::Completion& c = *run.own[0]->completion;
           c.results[0].tensor = std::move(run.batch.tensors[0]);
           engine::Completion::Due due;
           (void)c.Arrive(status, &due);
         },
         [this](const Status& status) { why = status; }}};

    int SetOf(const std::vector<int>& ranks) {
      const auto [it, added] = set_ids.try_emplace(ranks, static_cast<int>(set_ids.size()));
      if (added) sets.Add(it->second, ranks);
      return it->second;
    }
  };

  std::unique_ptr<transport::Channel> Ring(int from, int to) {
    engine::Transports& t = ranks_[from]->transports;
    return std::make_unique<transport::RingChannel>(t.neighbours.get(), t.local_of_rank[to],
                                                    transport::RingKind::kData);
  }
  void MakeHosts(const std::vector<int>& host_of) {
    std::map<int, std::vector<int>> hosts;
    for (int r = 0; r < size(); ++r) hosts[host_of[r]].push_back(r);
    for (const auto& [host, ranks] : hosts) {
      const int n = static_cast<int>(ranks.size());
      if (n == 1) continue;
      std::vector<std::shared_ptr<transport::Region>> regions;
      for (int i = 0; i < n; ++i) regions.push_back(transport::NewHeapRegion(transport::Arena::FixedBytes(n)));
      for (int i = 0; i < n; ++i) {
        engine::Transports& t = ranks_[ranks[i]]->transports;
        std::vector<transport::Neighbours::Member> members;
        for (int m = 0; m < n; ++m) {
          members.push_back({ranks[m], regions[m], {}});  // nobody sleeps here
          t.local_of_rank[ranks[m]] = m;
        }
        auto made = transport::Neighbours::Create(std::move(members), i);
        EXPECT_OK(made.status());
        t.neighbours = std::move(*made);
      }
    }
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace hvd::test
