// Shared memory that is cut off from the other processes while threads of this one go on storing into it.
#include "transport/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "native/engine/world.h"
#include "transport/heap/resident_heap.h"
#include "transport/heap/result_heap.h"

namespace hvd::test::transport_region {
namespace {

using namespace hvd::transport;

int NewMemfd(size_t bytes) {
  const int fd = memfd_create("region_test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT(ftruncate(fd, static_cast<off_t>(bytes)) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  return fd;
}

std::shared_ptr<Region> MapAgain(int fd, size_t bytes) {
  auto region = MapMemfd(fcntl(fd, F_DUPFD_CLOEXEC, 3), bytes);
  EXPECT_OK(region.status());
  return *region;
}

// What this process holds without a file, and memory of the file, in this order: what moves from the file to the
// process between the two must not count twice. Allocates nothing: the address sanitizer would keep it.
size_t BytesHeld(int fd) {
  char text[8192] = {};
  const int status = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  EXPECT(status >= 0 && read(status, text, sizeof(text) - 1) > 0);
  close(status);
  const char* const found = std::strstr(text, "RssAnon:");
  EXPECT(found != nullptr);
  const size_t anonymous_kb = found != nullptr ? std::strtoull(found + std::strlen("RssAnon:"), nullptr, 10) : 0;
  struct stat info = {};
  fstat(fd, &info);
  return static_cast<size_t>(info.st_blocks) * 512 + (anonymous_kb << 10);
}

TEST(region_made_private_keeps_its_content_and_hears_no_other) {
  const size_t bytes = 40 << 20, at = 1 << 20, part = 36 << 20;
  const int fd = NewMemfd(bytes);
  const auto own = MapAgain(fd, bytes), other = MapAgain(fd, bytes);
  EXPECT_OK(own->Commit(0, bytes));
  std::memset(own->data(), 7, bytes);
  EXPECT_OK(own->MakePrivate(at, part));
  std::memset(other->data(), 9, bytes);
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; ++i) {
    const bool cut_off = i >= at && i < at + part;
    wrong += own->data()[i] != static_cast<std::byte>(cut_off ? 7 : 9);
  }
  EXPECT_EQ(wrong, size_t{0});
  close(fd);
}

TEST(region_made_private_loses_no_store_of_its_own_threads) {
  const size_t bytes = 32 << 20, step = 64 << 10;
  const int fd = NewMemfd(bytes);
  const auto own = MapAgain(fd, bytes);
  EXPECT_OK(own->Commit(0, bytes));
  std::atomic<bool> begun{false}, stop{false};
  uint64_t rounds = 0;
  std::thread writer([&] {
    for (; !stop; ++rounds) {
      for (size_t i = 0; i < bytes; i += step)
        std::atomic_ref(*reinterpret_cast<uint64_t*>(own->data() + i)).fetch_add(1, std::memory_order_relaxed);
      begun = true;
    }
  });
  while (!begun) std::this_thread::yield();
  EXPECT_OK(own->MakePrivate(0, bytes));
  stop = true;
  writer.join();
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; i += step) wrong += *reinterpret_cast<uint64_t*>(own->data() + i) != rounds;
  EXPECT_EQ(wrong, size_t{0});
  close(fd);
}

TEST(resident_heap_made_private_takes_little_more_memory) {
  const size_t bytes = 128 << 20;
  const int fd = NewMemfd(bytes);
  const auto own = MapAgain(fd, bytes);
  EXPECT_OK(own->Commit(0, bytes));
  ResidentHeap heap(own, 0, bytes);
  const auto tensor = heap.Allocate(bytes);
  EXPECT_OK(tensor.status());
  std::memset(*tensor, 7, bytes);
  [[maybe_unused]] const size_t before = BytesHeld(fd);
  std::atomic<bool> done{false};
  [[maybe_unused]] size_t most = 0;
  std::thread watcher([&] {
    while (!done) most = std::max(most, BytesHeld(fd));
  });
  EXPECT_OK(heap.MakePrivate());
  done = true;
  watcher.join();
  most = std::max(most, BytesHeld(fd));
#ifndef __SANITIZE_THREAD__  // whose shadow memory counts as this process' own
  EXPECT(most < before + (24 << 20));
#endif
  close(fd);
}

// Makes a few steps private, then fails, as a process at a limit of its mappings does.
class FailingRegion final : public Region {
 public:
  FailingRegion(std::shared_ptr<Region> real, int steps) : real_(std::move(real)), steps_(steps) {
    data_ = real_->data();
    bytes_ = real_->bytes();
  }
  Status Commit(size_t offset, size_t bytes) override { return real_->Commit(offset, bytes); }
  Status MakePrivate(size_t offset, size_t bytes) override {
    return steps_-- == 0 ? Status(Code::kResource, "no more mappings") : real_->MakePrivate(offset, bytes);
  }
  void Drop(size_t offset, size_t bytes) override { real_->Drop(offset, bytes); }
  Status MakeShared(size_t offset, size_t bytes) override { return real_->MakeShared(offset, bytes); }
  void DetachInChild(size_t offset, size_t bytes) override { real_->DetachInChild(offset, bytes); }

 private:
  std::shared_ptr<Region> real_;
  int steps_;
};

// Abort tries, and shutdown tries again.
TEST(resident_heap_made_private_in_two_goes_keeps_what_is_there) {
  const size_t bytes = 40 << 20;
  const int fd = NewMemfd(bytes);
  ResidentHeap heap(std::make_shared<FailingRegion>(MapAgain(fd, bytes), 2), 0, bytes);
  const auto tensor = heap.Allocate(bytes);
  EXPECT_OK(tensor.status());
  auto* data = static_cast<unsigned char*>(*tensor);
  std::memset(data, 7, bytes);
  EXPECT(!heap.MakePrivate().ok());
  EXPECT(!heap.Allocate(1).ok());
  EXPECT_OK(heap.MakePrivate());
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; ++i) wrong += data[i] != 7;
  EXPECT_EQ(wrong, size_t{0});
  close(fd);
}

// ---- results

struct Results {
  static constexpr size_t kBytes = 8 << 20;
  int fd = NewMemfd(kBytes);
  std::shared_ptr<Region> own = MapAgain(fd, kBytes), other = MapAgain(fd, kBytes);
  ResultHeap heap{own, 1 << 20, kBytes - (1 << 20)};
  ~Results() { close(fd); }

  std::byte* Filled(size_t bytes, int value) {
    std::byte* const data = heap.Take(bytes);
    EXPECT(data != nullptr);
    std::memset(own->data() + (data - own->data()), value, bytes);
    return data;
  }
  // How another process sees it.
  std::byte* There(const std::byte* data) { return other->data() + (data - own->data()); }
  // What f answers in a forked child.
  template <class F>
  bool InChild(F f) {
    heap.BeforeFork();
    const pid_t child = fork();
    if (child == 0) {
      heap.AfterForkInChild();
      _exit(f() ? 0 : 1);
    }
    heap.AfterForkInParent();
    int status = 1;
    EXPECT(waitpid(child, &status, 0) == child);
    return status == 0;
  }
};

TEST(result_heap_pieces_are_shared_used_again_and_bounded) {
  Results r;
  std::byte* const first = r.Filled(3 << 20, 1);
  EXPECT(*r.There(first) == std::byte{1} && r.heap.OffsetInRegion(first).has_value());
  EXPECT(!r.heap.OffsetInRegion(r.own->data()).has_value());
  EXPECT(r.heap.Take(5 << 20) == nullptr && r.heap.Take(0) == nullptr);
  std::byte* const second = r.Filled(3 << 20, 2);
  EXPECT(r.heap.Take(1 << 20) == nullptr);  // none has been given back
  r.heap.Free(first);
  EXPECT(r.heap.Take(2 << 20) == first);
  EXPECT(r.heap.Take(1 << 20) != nullptr);
  r.heap.Free(second);
}

TEST(result_heap_a_child_keeps_what_the_parent_gives_back) {
  Results r;
  std::byte* const begun = r.Filled(1 << 20, 2);  // still the collective's
  std::byte* const given = r.Filled(2 << 20, 1);
  r.heap.HandOver(given);
  int pipes[2];
  EXPECT(pipe(pipes) == 0);
  r.heap.BeforeFork();
  const pid_t child = fork();
  if (child == 0) {
    r.heap.AfterForkInChild();
    char go;
    const bool told = read(pipes[0], &go, 1) == 1;
    r.heap.Free(given);  // does nothing: the memory is the parent's to use
    *begun = std::byte{9};
    _exit(told && given[0] == std::byte{1} && given[(2 << 20) - 1] == std::byte{1} ? 0 : 1);
  }
  r.heap.AfterForkInParent();
  std::memset(static_cast<void*>(given), 3, 2 << 20);
  r.heap.Free(given);
  std::byte* const again = r.Filled(2 << 20, 4);  // shared again
  EXPECT(*r.There(again) == std::byte{4});
  EXPECT(write(pipes[1], "g", 1) == 1);
  int status = 1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(*begun == std::byte{2} && *r.There(begun) == std::byte{2});
  close(pipes[0]);
  close(pipes[1]);
}

TEST(result_heap_made_private_hears_no_other_and_gives_no_more) {
  Results r;
  std::byte* const piece = r.Filled(1 << 20, 1);
  EXPECT_OK(r.heap.MakePrivate());
  std::memset(r.There(piece), 9, 1 << 20);
  EXPECT(piece[0] == std::byte{1} && r.heap.Take(1) == nullptr);
  EXPECT(r.InChild([&] { return piece[0] == std::byte{1}; }));
  r.heap.Free(piece);
}

// At abort a neighbour that lives is cut off; for one that is dead nothing is copied.
TEST(region_of_an_engine_that_aborts_hears_no_neighbour) {
  for (const bool dead : {false, true}) {
    EngineWorld::Options options;
    options.memfd = true;
    EngineWorld world(2, options);
    auto data = world[0].heap()->Allocate(1 << 20);
    EXPECT_OK(data.status());
    auto* own = static_cast<std::byte*>(*data);
    const auto offset = world[0].heap()->OffsetOf(own, 1);
    const Arena seen_by_neighbour(world.MapRegion(0), 2);
    std::vector<float> sum(4, 1.0f);
    if (dead) {
      world.Die(1);
      const Op op(HVD_ALLREDUCE, HVD_FLOAT32, "x", {4}, sum.data(), sum.data());
      EXPECT(RunOp(world[0], op.op).code() == Code::kPeerLost);
    } else {
      world[0].Abort(Status(Code::kInternal, "enough"));
    }
    seen_by_neighbour.heap()[*offset + 5000] = std::byte{9};
    EXPECT(own[5000] == (dead ? std::byte{9} : std::byte{0}));
    EXPECT_EQ(world[0].heap()->Allocate(4096).ok(), dead);
    EXPECT(world[0].heap()->Free(own));
  }
}

}  // namespace
}  // namespace hvd::test::transport_region
