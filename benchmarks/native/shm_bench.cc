// Benchmark of the allreduce over shared memory, inside the core: forks n processes over memfd arenas and times a
// float32 average in place, 4 B to 256 MB. Contenders alternate in one run: every process copying as many bytes (the
// limit of whoever copies), stores chosen by measurement, pinned to ordinary and to streaming, and tensors that live in
// shared memory. Buffers are rewritten before every call; a time is that of the slowest rank. Microseconds, median
// (best).
//
//   shm_bench [processes [seconds per size, at most 60 [bytes ...]]]
#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "collective/batch.h"
#include "collective/kernels/kernels.h"
#include "collective/shm/collectives.h"
#include "collective/stores/chooser.h"
#include "transport/local_view.h"

namespace hvd::collective {
namespace {

double NowUs() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr int kBlock = 9;  // calls of a contender in a row
constexpr int kWarmBlocks = (StoreChooser::kFirstTrials + kBlock - 1) / kBlock;
enum Contender { kCopy, kMeasured, kOrdinary, kStreaming, kResident, kContenders };
const char* const kNames[kContenders] = {"copy", "measured", "ordinary", "streaming", "resident"};

size_t Reserve(const std::vector<size_t>& sizes) {
  return std::max<size_t>(4096, *std::max_element(sizes.begin(), sizes.end()));
}

class Rank {
 public:
  Rank(std::unique_ptr<transport::Neighbours> neighbours, int cores)
      : n_(std::move(neighbours)), crowded_(n_->size() > cores) {
    n_->set_inline_spins(crowded_ ? 0 : 64);
    for (int c = 0; c < kContenders; ++c) {
      Group& g = groups_[c];
      std::vector<int> all;
      for (int r = 0; r < n_->size(); ++r) all.push_back(r);
      g.ranks = g.local_members = all;
      g.index = n_->self();
      if (!view_) view_ = std::make_unique<transport::LocalView>(n_.get(), all, n_->self());
      g.local = view_.get();
      g.stores = std::make_shared<StoreChooser>(c == kOrdinary    ? StoreChooser::Setting::kOrdinary
                                                : c == kStreaming ? StoreChooser::Setting::kStreaming
                                                                  : StoreChooser::Setting::kMeasure);
    }
  }

  void Run(const std::vector<size_t>& sizes, double seconds) {
    const size_t reserve = Reserve(sizes);
    plain_ = static_cast<std::byte*>(std::aligned_alloc(4096, reserve));
    target_ = static_cast<std::byte*>(std::aligned_alloc(4096, reserve));
    Result<void*> shared = n_->heap()->Allocate(reserve);
    if (plain_ == nullptr || target_ == nullptr || !shared.ok()) _exit(2);
    shared_ = static_cast<std::byte*>(*shared);
    std::memset(plain_, 0, reserve);
    std::memset(target_, 0, reserve);
    if (n_->self() == 0) {
      std::printf("%10s", "bytes");
      for (const char* name : kNames) std::printf("%22s", name);
      std::printf("   measured/copy  resident/copy (best)\n");
    }
    for (const size_t bytes : sizes) Measure(bytes, seconds);
  }

 private:
  void Measure(size_t bytes, double seconds) {
    std::vector<double> times[kContenders];
    const int calls = bytes <= 4096 ? 200 : 1;
    const double end = NowUs() + seconds * 1e6;
    int block = 0;
    for (uint64_t go = 1; go != 0; ++block) {
      for (int c = 0; c < kContenders; ++c) {
        for (int i = 0; i < kBlock; ++i) {
          const double slowest = Slowest(Once(static_cast<Contender>(c), bytes, calls)) / calls;
          // The first blocks are the chooser's trials; the first calls of a block find the caches as the contender
          // before left them.
          if (block >= kWarmBlocks && i >= kBlock / 3) times[c].push_back(slowest);
        }
      }
      go = block <= kWarmBlocks || NowUs() < end;
      std::vector<uint64_t> all(n_->size());
      Drive(shm::Exchange(groups_[kCopy], ++seq_, &go, sizeof go, all.data()));
      go = all[0];
    }
    if (n_->self() != 0) return;
    std::printf("%10zu", bytes);
    double best[kContenders];
    for (int c = 0; c < kContenders; ++c) {
      std::sort(times[c].begin(), times[c].end());
      best[c] = times[c][0];
      std::printf("%12.2f (%7.2f)", times[c][times[c].size() / 2], best[c]);
    }
    std::printf("%13.2f %13.2f\n", best[kMeasured] / best[kCopy], best[kResident] / best[kCopy]);
    std::fflush(stdout);
  }

  // Microseconds of `calls` calls on this rank.
  double Once(Contender c, size_t bytes, int calls) {
    std::byte* data = c == kResident ? shared_ : plain_;
    auto* values = reinterpret_cast<float*>(data);
    for (size_t i = 0; i < bytes / 4; ++i) values[i] = static_cast<float>((i + seq_) % 100);
    Batch barrier;
    barrier.seq = ++seq_;
    Drive(shm::Barrier(groups_[c], barrier));
    const double begin = NowUs();
    if (c == kCopy) {
      for (int i = 0; i < calls; ++i) {
        std::memcpy(target_, data, bytes);
        asm volatile("" : : "r"(target_) : "memory");
      }
      return NowUs() - begin;
    }
    for (int i = 0; i < calls; ++i) {
      Batch batch;
      batch.seq = ++seq_;
      batch.postscale = 1.0 / n_->size();
      Tensor t;
      t.input = t.output = data;
      t.shape = {static_cast<int64_t>(bytes / 4)};
      t.elems = bytes / 4;
      batch.tensors.push_back(std::move(t));
      Drive(shm::Allreduce(groups_[c], batch));
    }
    return NowUs() - begin;
  }

  double Slowest(double mine) {
    std::vector<double> all(n_->size());
    Drive(shm::Exchange(groups_[kCopy], ++seq_, &mine, sizeof mine, all.data()));
    return *std::max_element(all.begin(), all.end());
  }

  void Drive(Task task) {
    Runner runner(std::move(task));
    for (int idle = 0; !runner.done();) {
      if (runner.Advance()) {
        idle = 0;
      } else if (crowded_ && ++idle > 50) {
        sched_yield();
      } else {
        transport::Neighbours::Pause();
      }
    }
    if (runner.result().ok()) return;
    std::fprintf(stderr, "%s\n", runner.result().message().c_str());
    _exit(1);
  }

  std::unique_ptr<transport::Neighbours> n_;
  std::unique_ptr<transport::LocalView> view_;
  Group groups_[kContenders];
  bool crowded_;
  uint64_t seq_ = 0;
  std::byte *plain_ = nullptr, *target_ = nullptr, *shared_ = nullptr;
};

int Main(int n, double seconds, const std::vector<size_t>& sizes) {
  const size_t bytes = transport::Arena::FixedBytes(n) + Reserve(sizes) + 4096;
  std::vector<int> memory, doorbells;
  for (int r = 0; r < n; ++r) {
    memory.push_back(memfd_create("shm_bench", MFD_ALLOW_SEALING));
    doorbells.push_back(eventfd(0, EFD_NONBLOCK));
    if (ftruncate(memory[r], static_cast<off_t>(bytes)) != 0 || fcntl(memory[r], F_ADD_SEALS, F_SEAL_SHRINK) != 0)
      return 2;
  }
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  std::printf("%d processes on %d cores, kernels %s\n", n, cores, kernels::SimdName());
  std::fflush(stdout);
  int ready[2], go[2];
  if (pipe(ready) != 0 || pipe(go) != 0) return 2;
  for (int r = 0; r < n; ++r) {
    if (fork() != 0) continue;
    if (n <= cores) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(r, &set);
      sched_setaffinity(0, sizeof set, &set);
    }
    std::vector<transport::Neighbours::Member> members;
    for (int m = 0; m < n; ++m) {
      Result<std::shared_ptr<transport::Region>> region = transport::MapMemfd(memory[m], bytes);
      if (!region.ok()) _exit(2);
      members.push_back({m, *region, hvd::Fd(doorbells[m])});
    }
    Result<std::unique_ptr<transport::Neighbours>> neighbours = transport::Neighbours::Create(std::move(members), r);
    if (!neighbours.ok()) _exit(2);
    // Nobody looks at an arena before its owner has made it.
    char byte = 0;
    if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) _exit(2);
    Rank(std::move(*neighbours), cores).Run(sizes, seconds);
    _exit(0);
  }
  char byte = 0;
  for (int r = 0; r < n; ++r) {
    if (read(ready[0], &byte, 1) != 1) return 2;
  }
  for (int r = 0; r < n; ++r) {
    if (write(go[1], &byte, 1) != 1) return 2;
  }
  int failures = 0, status = 0;
  while (wait(&status) > 0) failures += status != 0;
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hvd::collective

int main(int argc, char** argv) {
  std::vector<size_t> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  if (sizes.empty()) {
    sizes = {4,       1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10,
             1 << 18, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};
  }
  return hvd::collective::Main(argc > 1 ? std::atoi(argv[1]) : 2,
                               argc > 2 ? std::clamp(std::atof(argv[2]), 0.0, 60.0) : 0.5, sizes);
}
