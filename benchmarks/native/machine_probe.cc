// What the machine's two cores are to each other: two processes (pinned to two cores when the machine has them) hand a
// cache line to and fro, copy at the same time, and read what the other has just written. Used by
// benchmarks/harness/machine_state.py, which compiles this file alone; part of no library. Prints one line of key=value
// words: one_way_ns, copy_gb_s (each of two, 64 MB), own_read_gb_s and dirty_read_gb_s (512 KB written by oneself / by
// the other).
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace {

constexpr size_t kChunk = 512 << 10, kLarge = 64 << 20;
constexpr int kTurns = 20000, kReads = 40, kCopies = 5;

struct Shared {
  alignas(64) std::atomic<int> line{0};
  alignas(64) std::atomic<int> turn{0};
  alignas(64) double copy_s[2];
  alignas(4096) unsigned char chunk[kChunk];
};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void Wait(const std::atomic<int>& word, int value) {
  // A single core must be given away.
  for (int spins = 0; word.load(std::memory_order_acquire) < value; ++spins) {
    if (spins > 20000) sched_yield();
  }
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void Run(int self, Shared* shared) {
  double begin = Now();
  for (int i = 0; i < kTurns; ++i) {
    const int mine = 2 * i + self;
    Wait(shared->line, mine);
    if (i == kTurns / 4) begin = Now();  // after a warm-up
    shared->line.store(mine + 1, std::memory_order_release);
  }
  const double one_way_ns = (Now() - begin) * 1e9 / (kTurns * 3 / 4) / 2;

  auto* private_chunk = static_cast<unsigned char*>(std::malloc(kChunk));
  auto* target = static_cast<unsigned char*>(std::malloc(kChunk));
  std::memset(private_chunk, 1, kChunk);
  std::memset(target, 1, kChunk);
  std::vector<double> dirty, own;
  for (int i = 0; i < kReads; ++i) {
    if (self == 1) {
      Wait(shared->turn, 2 * i);
      std::memset(shared->chunk, i, kChunk);
      shared->turn.store(2 * i + 1, std::memory_order_release);
      continue;
    }
    std::memset(private_chunk, i, kChunk);
    double start = Now();
    std::memcpy(target, private_chunk, kChunk);
    own.push_back(Now() - start);
    Wait(shared->turn, 2 * i + 1);
    start = Now();
    std::memcpy(target, shared->chunk, kChunk);
    dirty.push_back(Now() - start);
    shared->turn.store(2 * i + 2, std::memory_order_release);
  }
  if (self == 1) Wait(shared->turn, 2 * kReads);

  auto* from = static_cast<unsigned char*>(std::malloc(kLarge));
  auto* to = static_cast<unsigned char*>(std::malloc(kLarge));
  std::memset(from, 1, kLarge);
  std::memset(to, 1, kLarge);
  std::vector<double> copies;
  for (int i = 0; i < kCopies; ++i) {
    shared->turn.fetch_add(1);
    Wait(shared->turn, 2 * kReads + 2 * (i + 1));
    const double start = Now();
    std::memcpy(to, from, kLarge);
    copies.push_back(Now() - start);
  }
  shared->copy_s[self] = Median(copies);
  shared->turn.fetch_add(1);
  Wait(shared->turn, 2 * kReads + 2 * kCopies + 2);
  if (self == 0) {
    std::printf("one_way_ns=%.0f copy_gb_s=%.2f own_read_gb_s=%.2f dirty_read_gb_s=%.2f\n", one_way_ns,
                kLarge / std::max(shared->copy_s[0], shared->copy_s[1]) / 1e9, kChunk / Median(own) / 1e9,
                kChunk / Median(dirty) / 1e9);
    std::fflush(stdout);
  }
}

}  // namespace

int main() {
  void* page = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 1;
  auto* shared = new (page) Shared;
  cpu_set_t usable;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof usable, &usable) == 0) {
    for (int c = 0; c < CPU_SETSIZE; ++c) {
      if (CPU_ISSET(c, &usable)) cores.push_back(c);
    }
  }
  const pid_t child = fork();
  if (child < 0) return 1;
  const int self = child == 0 ? 1 : 0;
  if (cores.size() > 1) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cores[self], &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return 1;
  }
  Run(self, shared);
  if (self == 1) _exit(0);
  int status = 0;
  return wait(&status) == child && status == 0 ? 0 : 1;
}
