// The whole core without Python: N forked processes call hvd_run(allreduce) on one named float32 tensor, sizes 4 B to
// 64 MB, and submit 115 small tensors before they wait for all (as many and as much as the small gradients of
// ResNet-50). Prints, for each, the slowest rank's median and best time. Usage: engine_bench [ranks] [largest bytes].
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "horovod/horovod.h"

namespace {

struct Shared {  // results of every rank, in memory made before the fork
  std::atomic<int> failures{0};
  double median[16], best[16];
  double set_median, set_best;
};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr int kSetTensors = 115, kSetElems = 1440, kSetRounds = 2000;

// Each tensor is submitted for itself, then each is waited for.
int RunSet(int rank, int n, Shared* mine) {
  const int64_t shape = kSetElems;
  std::vector<std::vector<float>> data(kSetTensors, std::vector<float>(kSetElems));
  std::vector<std::array<char, 32>> names(kSetTensors);
  std::vector<hvd_op> ops(kSetTensors);
  for (int k = 0; k < kSetTensors; ++k) {
    std::snprintf(names[k].data(), names[k].size(), "layer%d.weight", k);
    hvd_op& op = ops[k] = {};
    op.dtype = HVD_FLOAT32;
    op.reduce_op = HVD_SUM;
    op.prescale = op.postscale = 1;
    op.name = names[k].data();
    op.input = op.output = data[k].data();
    op.shape = &shape;
    op.ndim = 1;
  }
  std::vector<double> times;
  for (int i = 0; i < kSetRounds; ++i) {
    for (auto& tensor : data) tensor[0] = static_cast<float>(i + rank);
    hvd_handle handles[kSetTensors];
    const double begin = Now();
    bool good = true;
    for (int k = 0; k < kSetTensors; ++k) good &= hvd_submit(&ops[k], 1, 0, &handles[k]) == HVD_OK;
    for (const hvd_handle handle : handles) good &= hvd_finish(handle, 60) == HVD_OK;
    times.push_back(Now() - begin);
    for (const auto& tensor : data) good &= tensor[0] == static_cast<float>(n * i + n * (n - 1) / 2);
    if (!good) {
      std::fprintf(stderr, "rank %d, set, round %d: %s\n", rank, i, hvd_last_error());
      return 1;
    }
    for (auto& tensor : data) std::fill(tensor.begin(), tensor.end(), 1.0f);
  }
  std::sort(times.begin(), times.end());
  mine->set_median = times[times.size() / 2];
  mine->set_best = times[0];
  return 0;
}

int RunRank(int rank, int n, const std::vector<int>& memory, const std::vector<int>& bells, size_t largest,
            Shared* mine) {
  std::vector<hvd_peer> peers;
  std::vector<int32_t> hosts(n, 0);
  for (int r = 0; r < n; ++r) {
    if (r == rank) continue;
    hvd_peer p = {};
    p.rank = r;
    p.memory_fd = memory[r];
    p.doorbell_fd = bells[r];
    p.liveness_fd = p.control_fd = p.data_fd = -1;
    peers.push_back(p);
  }
  hvd_config c = {};
  c.struct_bytes = sizeof c;
  c.rank = c.local_rank = rank;
  c.size = c.local_size = n;
  c.cross_size = 1;
  c.epoch = 1;
  c.host_of_rank = hosts.data();
  c.peers = peers.data();
  c.n_peers = n - 1;
  c.memory_fd = memory[rank];
  c.doorbell_fd = bells[rank];
  c.wish_fd = -1;
  c.fusion_threshold_bytes = 128 << 20;
  c.cache_capacity = 1024;
  c.hierarchical_allreduce = c.hierarchical_allgather = c.torus_allreduce = -1;
  c.stall_warning_s = 60;
  c.collective_timeout_s = 60;
  c.spin_us = -1;
  c.thread_affinity = -1;
  c.log_level = 3;
  if (hvd_init(&c) != HVD_OK) {
    std::fprintf(stderr, "rank %d: %s\n", rank, hvd_last_error());
    return 1;
  }
  std::vector<float> data(largest / 4, 1.0f);
  int row = 0;
  for (size_t bytes = 4; bytes <= largest; bytes *= 4, ++row) {
    const int64_t shape = static_cast<int64_t>(bytes / 4);
    char name[32];
    std::snprintf(name, sizeof name, "x%zu", bytes);
    hvd_op op = {};
    op.dtype = HVD_FLOAT32;
    op.reduce_op = HVD_SUM;
    op.prescale = op.postscale = 1;
    op.name = name;
    op.input = op.output = data.data();
    op.shape = &shape;
    op.ndim = 1;
    const int rounds = bytes < (64 << 10) ? 20000 : static_cast<int>(std::max<size_t>(20, (1u << 30) / bytes / 4));
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i) {
      data[0] = static_cast<float>(i + rank);
      hvd_handle h = 0;
      const double begin = Now();
      hvd_status s = hvd_run(&op, 1, 60, &h);
      while (s == HVD_IN_PROGRESS) s = hvd_wait(h, 60);
      times.push_back(Now() - begin);
      if (s != HVD_OK || data[0] != static_cast<float>(n * i + n * (n - 1) / 2)) {
        std::fprintf(stderr, "rank %d, %zu bytes, round %d: %s, %f\n", rank, bytes, i,
                     s == HVD_OK ? "wrong" : hvd_last_error(), data[0]);
        return 1;
      }
      if (shape > 1) std::fill(data.begin(), data.begin() + shape, 1.0f);
    }
    std::sort(times.begin(), times.end());
    mine->median[row] = times[times.size() / 2];
    mine->best[row] = times[0];
  }
  if (RunSet(rank, n, mine) != 0) return 1;
  return hvd_shutdown(5) == HVD_OK ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 2;
  const size_t largest = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 64u << 20;
  void* page = mmap(nullptr, sizeof(Shared) * n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (page) Shared[n];
  std::vector<int> memory, bells;
  for (int r = 0; r < n; ++r) {
    const int fd = static_cast<int>(syscall(SYS_memfd_create, "arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (ftruncate(fd, hvd_region_bytes(n, 0)) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
      return 1;
    memory.push_back(fd);
    bells.push_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }
  for (int r = 0; r < n; ++r) {
    if (fork() == 0) _exit(RunRank(r, n, memory, bells, largest, &shared[r]));
  }
  bool good = true;
  for (int r = 0; r < n; ++r) {
    int status;
    good &= wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  if (!good) return 1;
  int row = 0;
  for (size_t bytes = 4; bytes <= largest; bytes *= 4, ++row) {
    double median = 0, best = 0;
    for (int r = 0; r < n; ++r) {
      median = std::max(median, shared[r].median[row]);
      best = std::max(best, shared[r].best[row]);
    }
    std::printf("%10zu bytes: median %9.2f us, best %9.2f us\n", bytes, median * 1e6, best * 1e6);
  }
  double median = 0, best = 0;
  for (int r = 0; r < n; ++r) {
    median = std::max(median, shared[r].set_median);
    best = std::max(best, shared[r].set_best);
  }
  std::printf("%4d small tensors: median %9.2f us, best %9.2f us\n", kSetTensors, median * 1e6, best * 1e6);
  return 0;
}
