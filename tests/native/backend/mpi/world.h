// Ranks as threads over the fake MPI library: a job for each, groups over any of them, and a driver without an engine.
#pragma once

#include <dlfcn.h>
#include <sched.h>

#include <chrono>
#include <numeric>

#include "backend/mpi/collectives.h"
#include "native/backend/mpi/fake/fake_mpi.h"
#include "native/collective/channels/world.h"

namespace hvd::test {

using backend::mpi::Job;
using backend::mpi::Style;

inline const std::vector<Style>& AllStyles() {
  static const auto* const kAll = new std::vector<Style>{Style::kOpenMpi, Style::kMpich, Style::kStandard};
  return *kAll;
}

// The library with these handles; its build gives the folder.
class FakeMpi {
 public:
  explicit FakeMpi(Style style)
      : path_(Folder() + "/libfake_mpi_" + std::to_string(static_cast<int>(style)) + ".so"),
        library_(dlopen(path_.c_str(), RTLD_NOW)) {
    EXPECT(library_ != nullptr);
  }
  const std::string& path() const { return path_; }
  template <class Function>
  Function Get(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  int faults() const { return Get<FakeFaults>("fake_faults")(); }

 private:
  const std::string path_;
  void* const library_;
};

class MpiWorld {
 public:
  MpiWorld(Style style, int n) : fake_(style), handles_(n), jobs_(n) {
    fake_.Get<FakeWorld>("fake_world")(n, handles_.data());
    for (int r = 0; r < n; ++r) {
      auto job = Job::Of(fake_.path(), style, handles_[r]);
      EXPECT_OK(job.status());
      jobs_[r] = *job;
      jobs_[r]->Keep(all(), handles_[r]);
    }
  }
  int size() const { return static_cast<int>(jobs_.size()); }
  const FakeMpi& fake() const { return fake_; }
  uint64_t handle(int rank) const { return handles_[rank]; }
  Job& job(int rank) { return *jobs_[rank]; }
  std::vector<int> all() const {
    std::vector<int> ranks(size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  static collective::Group GroupOf(int rank, const std::vector<int>& members) {
    collective::Group g;
    g.ranks = members;
    for (int m = 0; m < g.size(); ++m) {
      if (members[m] == rank) g.index = m;
    }
    return g;
  }

  Status Run(int rank, const collective::Group& group, collective::Batch& batch) {
    Runner runner(backend::mpi::Collective(job(rank), group, batch));
    const auto start = std::chrono::steady_clock::now();
    while (!runner.done()) {
      if (!runner.Advance()) sched_yield();
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(60))
        return Status(Code::kTimeout, "rank " + std::to_string(rank) + " hangs");
    }
    return runner.result();
  }

 private:
  const FakeMpi fake_;
  std::vector<uint64_t> handles_;
  std::vector<std::shared_ptr<Job>> jobs_;
};

}  // namespace hvd::test
