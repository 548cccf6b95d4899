// The life of the C interface: starts that fail, handles of two lives, timelines, numbers that do not fit.
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "native/api/world.h"

namespace hvd::test::api_life {
namespace {

const std::string kTrace = "/tmp/hvd_api_test." + std::to_string(getpid()) + ".json";

// The whole job of one rank.
hvd_status InitAlone() {
  static const int32_t host = 0;
  const hvd_config c = PlainConfig(0, 1, &host);
  return hvd_init(&c);
}

// ---- starts that fail

struct FailedStart {
  const char* what;
  hvd_status status;
  std::function<void(Attempt&)> spoil;
};

int RegularFile() { return open("/proc/self/exe", O_RDONLY | O_CLOEXEC); }  // epoll refuses it

const FailedStart kFailedStarts[] = {
    {"a peer out of range", HVD_INVALID_ARGUMENT, [](Attempt& a) { a.peers[1].rank = 3; }},
    {"a peer twice", HVD_INVALID_ARGUMENT, [](Attempt& a) { a.peers[1].rank = 1; }},
    {"no way to a peer", HVD_INVALID_ARGUMENT, [](Attempt& a) { a.config.n_peers = 1; }},
    {"no hosts", HVD_INVALID_ARGUMENT, [](Attempt& a) { a.config.host_of_rank = nullptr; }},
    {"own memory too small", HVD_INTERNAL, [](Attempt& a) { a.Replace(&a.config.memory_fd, NewMemory(4096)); }},
    {"a peer's memory not sealed", HVD_INTERNAL,
     [](Attempt& a) { a.Replace(&a.peers[0].memory_fd, NewMemory(Attempt::RegionBytes(), 0)); }},
    {"a doorbell that cannot be watched", HVD_INTERNAL,
     [](Attempt& a) { a.Replace(&a.config.doorbell_fd, RegularFile()); }},
    {"a life sign that cannot be watched", HVD_INTERNAL,
     [](Attempt& a) { a.Replace(&a.peers[0].liveness_fd, RegularFile()); }},
    {"a last life sign that cannot be watched", HVD_INTERNAL,
     [](Attempt& a) { a.Replace(&a.peers[1].liveness_fd, RegularFile()); }},
    {"a data socket that cannot be watched", HVD_INTERNAL,
     [](Attempt& a) { a.Replace(&a.peers[1].data_fd, RegularFile()); }},
    {"a control socket that cannot be watched", HVD_INTERNAL,
     [](Attempt& a) { a.Replace(&a.peers[1].control_fd, RegularFile()); }},
    {"a timeline that cannot be written", HVD_INVALID_ARGUMENT,
     [](Attempt& a) { a.config.timeline_path = "/nowhere/at/all.json"; }},
};

TEST(api_failed_starts_leak_no_descriptor) {
  for (const FailedStart& start : kFailedStarts) {
    const int before = OpenDescriptors();
    {
      Attempt attempt;
      start.spoil(attempt);
      // What the spoiler has taken out of the configuration is not the core's.
      for (int i = attempt.config.n_peers; i < 2; ++i) {
        for (const int fd : {attempt.peers[i].liveness_fd, attempt.peers[i].control_fd, attempt.peers[i].data_fd})
          close(fd);
      }
      const hvd_status status = hvd_init(&attempt.config);
      EXPECT_EQ(static_cast<int>(status), static_cast<int>(start.status));
    }
    EXPECT_EQ(std::string(start.what) + ": " + std::to_string(OpenDescriptors()),
              std::string(start.what) + ": " + std::to_string(before));
  }
}

TEST(api_start_while_started_leaks_no_descriptor) {
  EXPECT_EQ(InitAlone(), HVD_OK);
  const int before = OpenDescriptors();
  {
    Attempt attempt;
    EXPECT_EQ(hvd_init(&attempt.config), HVD_INVALID_ARGUMENT);
  }
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_EQ(hvd_shutdown(0), HVD_OK);
}

// Every descriptor that the start itself opens may be the one too many.
TEST(api_start_without_descriptors_left_names_the_limit) {
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  int failures = 0;
  hvd_status status = HVD_INTERNAL;
  for (int more = 0; status != HVD_OK && more < 40; ++more) {
    const int open_before = OpenDescriptors();
    {
      Attempt attempt;
      const int next = dup(0);
      close(next);
      const rlimit tight = {static_cast<rlim_t>(next + more), before.rlim_max};
      setrlimit(RLIMIT_NOFILE, &tight);
      status = hvd_init(&attempt.config);
      setrlimit(RLIMIT_NOFILE, &before);
      if (status != HVD_OK) {
        ++failures;
        EXPECT_EQ(status, HVD_RESOURCE);
        EXPECT(std::strstr(hvd_last_error(), "ulimit -n") != nullptr);
      }
      EXPECT_EQ(hvd_shutdown(0), HVD_OK);
    }
    EXPECT_EQ(OpenDescriptors(), open_before);
  }
  EXPECT_EQ(status, HVD_OK);
  EXPECT(failures >= 4);  // two sleepers, a timer and a nudge
}

// While it lives, no thread can be made: its stack would not fit into the address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 47);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

bool AnySignalBlocked() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (int number = 1; number < 32; ++number) {
    if (sigismember(&blocked, number) == 1) return true;
  }
  return false;
}

TEST(api_start_without_a_thread_names_the_limit_and_blocks_no_signal) {
  for (const char* timeline : {"", kTrace.c_str()}) {
    const int before = OpenDescriptors();
    {
      Attempt attempt;
      attempt.config.timeline_path = timeline;
      const NoThreads none;
      EXPECT_EQ(hvd_init(&attempt.config), HVD_RESOURCE);
    }
    EXPECT(std::strstr(hvd_last_error(), "ulimit -u") != nullptr);
    EXPECT(!AnySignalBlocked());
    EXPECT_EQ(OpenDescriptors(), before);
    EXPECT_EQ(hvd_initialized(), 0);
  }
  EXPECT_EQ(InitAlone(), HVD_OK);
  EXPECT_EQ(hvd_shutdown(0), HVD_OK);
  unlink(kTrace.c_str());
}

// ---- handles

hvd_handle Submit(float* value) {
  hvd_op op = {};
  op.type = HVD_ALLREDUCE;
  op.dtype = HVD_FLOAT32;
  op.reduce_op = HVD_SUM;
  op.prescale = op.postscale = 1;
  op.name = "x";
  op.input = op.output = value;
  hvd_handle handle = 0;
  EXPECT_EQ(hvd_submit(&op, 1, 0, &handle), HVD_OK);
  return handle;
}

TEST(api_handles_of_an_earlier_life_mean_nothing) {
  float value = 1;
  EXPECT_EQ(InitAlone(), HVD_OK);
  const hvd_handle old = Submit(&value);
  EXPECT_EQ(hvd_shutdown(0), HVD_OK);
  EXPECT_EQ(InitAlone(), HVD_OK);
  const hvd_handle handle = Submit(&value);
  EXPECT(handle != old);
  EXPECT_EQ(hvd_release(old), HVD_UNKNOWN_HANDLE);
  EXPECT_EQ(hvd_poll(old), HVD_UNKNOWN_HANDLE);
  EXPECT_EQ(hvd_finish(handle, 10), HVD_OK);
  EXPECT_EQ(hvd_shutdown(0), HVD_OK);
}

// ---- results

TEST(api_received_splits_that_do_not_fit_are_an_error) {
  EXPECT_EQ(InitAlone(), HVD_OK);
  const int64_t rows = (int64_t{1} << 33) + 7;
  const int64_t shape[2] = {rows, 0};  // no elements, so no memory
  hvd_op op = {};
  op.type = HVD_ALLTOALL;
  op.dtype = HVD_UINT8;
  op.prescale = op.postscale = 1;
  op.name = "many";
  op.ndim = 2;
  op.shape = shape;
  hvd_handle handle = 0;
  EXPECT_EQ(hvd_submit(&op, 1, 0, &handle), HVD_OK);
  EXPECT_EQ(hvd_wait(handle, 10), HVD_OK);
  int32_t splits = -1;
  EXPECT_EQ(hvd_received_splits(handle, 0, &splits, 1), HVD_UNSUPPORTED);
  EXPECT(std::strstr(hvd_last_error(), std::to_string(rows).c_str()) != nullptr);
  EXPECT_EQ(splits, -1);
  hvd_result result;
  EXPECT_EQ(hvd_take_result(handle, 0, &result), HVD_OK);  // the rows themselves are all there
  EXPECT_EQ(result.shape[0], rows);
  hvd_result_free(result.owner);
  EXPECT_EQ(hvd_shutdown(0), HVD_OK);
}

// ---- timeline

TEST(api_timeline_starts_and_stops_from_many_threads) {
  EXPECT_EQ(InitAlone(), HVD_OK);
  RanksAsThreads(3, [](int t) {
    float value = 1;
    for (int i = 0; i < 2000; ++i) {
      if (t == 2) {
        EXPECT_EQ(hvd_finish(Submit(&value), 10), HVD_OK);
        continue;
      }
      const hvd_status started = hvd_timeline_start(kTrace.c_str(), i % 2);
      EXPECT(started == HVD_OK || started == HVD_INVALID_ARGUMENT);  // another thread's is being written
      EXPECT_EQ(hvd_timeline_stop(), HVD_OK);
    }
  });
  EXPECT_EQ(hvd_shutdown(0), HVD_OK);
  unlink(kTrace.c_str());
}

TEST(api_timeline_on_a_full_device_is_refused) {
  EXPECT_EQ(InitAlone(), HVD_OK);
  EXPECT_EQ(hvd_timeline_start("/dev/full", 0), HVD_INVALID_ARGUMENT);
  EXPECT(std::strstr(hvd_last_error(), "'/dev/full': No space left on device") != nullptr);
  EXPECT_EQ(hvd_shutdown(0), HVD_OK);
}

// Warnings of the core, while it lives.
std::atomic<int> warnings{0};
class CountedWarnings {
 public:
  CountedWarnings() {
    warnings = 0;
    hvd_log_sink([](int32_t level, const char* text) {
      if (level == 3 && std::strstr(text, kTrace.c_str()) != nullptr) ++warnings;
    });
  }
  ~CountedWarnings() { hvd_log_sink(nullptr); }
};

TEST(api_timeline_that_finds_no_more_room_says_so_once_and_stays_whole) {
  static const int32_t host = 0;
  hvd_config c = PlainConfig(0, 1, &host);
  c.log_level = 3;
  EXPECT_EQ(hvd_init(&c), HVD_OK);
  const CountedWarnings counted;
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  EXPECT_EQ(hvd_timeline_start(kTrace.c_str(), 0), HVD_OK);
  const rlimit tight = {4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  float value = 1;
  for (int i = 0; i < 300; ++i) EXPECT_EQ(hvd_finish(Submit(&value), 10), HVD_OK);
  EXPECT_EQ(hvd_timeline_stop(), HVD_INTERNAL);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT(std::strstr(hvd_last_error(), kTrace.c_str()) != nullptr);
  EXPECT_EQ(warnings.load(), 1);
  std::ifstream file(kTrace);
  std::string line, text;
  while (std::getline(file, line)) text = line;
  EXPECT_EQ(text, std::string("]"));
  EXPECT_EQ(hvd_timeline_start(kTrace.c_str(), 0), HVD_OK);  // there is room again
  EXPECT_EQ(hvd_timeline_stop(), HVD_OK);
  EXPECT_EQ(hvd_shutdown(0), HVD_OK);
  unlink(kTrace.c_str());
}

}  // namespace
}  // namespace hvd::test::api_life
