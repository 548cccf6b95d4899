// A rank forks (DataLoader workers, evaluators do): the child is none, sees the rank's shared tensors as they are, and
// changes nothing of it, whatever the other threads of the rank were doing at that moment.
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "native/api/world.h"

namespace hvd::test::api_fork {
namespace {

constexpr size_t kBytes = 3 * 4096;

// What the child finds wrong; 0: nothing.
int ChildsVerdict(unsigned char* tensor) {
  alarm(20);  // a lock that nobody will ever open
  for (size_t i = 0; i < kBytes; ++i) {
    if (tensor[i] != 7) return 1;
  }
  std::memset(tensor, 42, kBytes);
  if (tensor[0] != 42 || tensor[kBytes - 1] != 42) return 2;
  void* more = nullptr;
  if (hvd_shared_alloc(64, &more) != HVD_NOT_INITIALIZED) return 3;
  if (std::strstr(hvd_last_error(), "forked") == nullptr) return 4;
  hvd_shared_free(tensor);
  if (tensor[0] != 42) return 5;
  Attempt attempt;
  const int before = OpenDescriptors() - 8;  // those of the attempt: closed by the refusal
  if (hvd_init(&attempt.config) != HVD_NOT_INITIALIZED || OpenDescriptors() != before) return 6;
  return hvd_initialized() != 0 || hvd_shutdown(1) != HVD_OK ? 7 : 0;
}

// Keeps the locks of the library busy.
void Bustle(const std::atomic<bool>& stop) {
  while (!stop) {
    void* data = nullptr;
    if (hvd_shared_alloc(64, &data) != HVD_OK) return Fail(__FILE__, __LINE__, hvd_last_error());
    hvd_shared_free(data);
    (void)hvd_initialized();
  }
}

TEST(fork_child_writes_to_a_copy_and_meets_no_lock) {
  Attempt attempt;
  EXPECT_EQ(hvd_init(&attempt.config), HVD_OK);
  void* data = nullptr;
  EXPECT_EQ(hvd_shared_alloc(kBytes, &data), HVD_OK);
  auto* const tensor = static_cast<unsigned char*>(data);
  std::memset(tensor, 7, kBytes);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) threads.emplace_back([&] { Bustle(stop); });
  for (int round = 0; round < 60; ++round) {
    const pid_t child = fork();
    if (child == 0) _exit(ChildsVerdict(tensor));
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ("the child: " + std::to_string(status), std::string("the child: 0"));
    for (size_t i = 0; i < kBytes; i += 512) EXPECT_EQ(static_cast<int>(tensor[i]), 7);
    if (status != 0) break;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  // What the rank itself does is unchanged: its tensor is shared memory still, then its own.
  std::memset(tensor, 9, kBytes);
  EXPECT_EQ(hvd_shutdown(0), HVD_OK);
  EXPECT_EQ(static_cast<int>(tensor[kBytes - 1]), 9);
  const pid_t late = fork();
  if (late == 0) _exit(tensor[0] == 9 && tensor[kBytes - 1] == 9 ? 0 : 1);
  int status = -1;
  waitpid(late, &status, 0);
  EXPECT_EQ(status, 0);
  hvd_shared_free(tensor);
}

}  // namespace
}  // namespace hvd::test::api_fork
