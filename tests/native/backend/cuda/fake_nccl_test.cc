// What the seam relies on in NCCL. Over the fake one, with members in threads and processes; over a real one that
// HVD_TEST_NCCL_LIBRARY names (and HVD_TEST_CUDA_LIBRARY) with one member, since that takes one GPU for each.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>

#include "native/backend/cuda/driver.h"

extern char** environ;

namespace hvd::test::backend_cuda_fake_nccl {
namespace {

using std::chrono::steady_clock;

double MsSince(steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
}
void* At(uint64_t address) { return reinterpret_cast<void*>(address); }

// One member, with a device of its own.
struct Member {
  const Cuda cuda;
  const Nccl nccl;
  int rank = 0, size = 1;
  void *comm = nullptr, *stream = nullptr;

  Member(const UniqueId& id, int rank, int size, int device, bool blocking = true) : rank(rank), size(size) {
    cuda.Use(device);
    stream = cuda.NewStream();
    NcclConfig config;
    config.blocking = blocking ? 1 : 0;
    EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, size, id, rank, &config), blocking ? 0 : 7);
    EXPECT_EQ(nccl.Settled(comm), 0);
  }
  ~Member() {
    if (comm != nullptr) EXPECT_EQ(nccl.ncclCommDestroy(comm), 0);
    EXPECT_EQ(cuda.cuStreamDestroy_v2(stream), 0);
  }
  uint64_t Put(const std::vector<float>& data) const { return cuda.NewMemory(data, stream); }
  std::vector<float> Get(uint64_t address, size_t count) const { return cuda.Read<float>(address, count, stream); }
};

UniqueId NewId() {
  UniqueId id;
  EXPECT_EQ(Nccl().ncclGetUniqueId(&id), 0);
  return id;
}
// Members in threads; one, over real libraries.
void WithMembers(int n, const std::function<void(Member&)>& body) {
  const UniqueId id = NewId();
  const int size = OverFakes() ? n : 1;
  RanksAsThreads(size, [&](int r) {
    Member member(id, r, size, r);
    body(member);
  });
}
std::vector<float> Filled(size_t count, double value) { return std::vector<float>(count, static_cast<float>(value)); }

TEST(nccl_contract_collectives) {
  const Fakes fakes;
  WithMembers(2, [](Member& m) {
    const Nccl& nccl = m.nccl;
    const int n = m.size, sum = n * (n + 1) / 2;  // of rank + 1
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{150001}}) {
      const uint64_t in = m.Put(Filled(count, m.rank + 1)), out = m.cuda.NewMemory(count * n * 4);
      EXPECT_EQ(nccl.ncclAllReduce(At(in), At(out), count, kNcclFloat32, kNcclSum, m.comm, m.stream), 0);
      EXPECT(m.Get(out, count) == Filled(count, sum));
      EXPECT_EQ(nccl.ncclAllReduce(At(in), At(out), count, kNcclFloat32, kNcclMax, m.comm, m.stream), 0);
      EXPECT(m.Get(out, count) == Filled(count, n));
      EXPECT_EQ(nccl.ncclAllReduce(At(in), At(out), count, kNcclFloat32, kNcclAverage, m.comm, m.stream), 0);
      EXPECT(m.Get(out, count) == Filled(count, static_cast<double>(sum) / n));
      EXPECT_EQ(nccl.ncclAllGather(At(in), At(out), count, kNcclFloat32, m.comm, m.stream), 0);
      std::vector<float> gathered;
      for (int r = 0; r < n; ++r) gathered.insert(gathered.end(), count, static_cast<float>(r + 1));
      EXPECT(m.Get(out, count * n) == gathered);
      const uint64_t part = m.cuda.NewMemory(count * 4);
      EXPECT_EQ(nccl.ncclReduceScatter(At(out), At(part), count, kNcclFloat32, kNcclSum, m.comm, m.stream), 0);
      EXPECT(m.Get(part, count) == Filled(count, n * (m.rank + 1)));
      EXPECT_EQ(nccl.ncclBroadcast(At(in), At(part), count, kNcclFloat32, n - 1, m.comm, m.stream), 0);
      EXPECT(m.Get(part, count) == Filled(count, n));
      EXPECT_EQ(nccl.ncclReduce(At(in), At(part), count, kNcclFloat32, kNcclSum, n - 1, m.comm, m.stream), 0);
      EXPECT(m.Get(part, count) == Filled(count, m.rank == n - 1 ? sum : n));
      // In place
      EXPECT_EQ(nccl.ncclAllReduce(At(in), At(in), count, kNcclFloat32, kNcclSum, m.comm, m.stream), 0);
      EXPECT(m.Get(in, count) == Filled(count, sum));
    }
  });
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(nccl_contract_many_at_once_on_two_streams) {
  const Fakes fakes;
  WithMembers(2, [](Member& m) {
    void *other = m.cuda.NewStream(), *event = m.cuda.NewEvent();
    const uint64_t first = m.Put(Filled(100, 1)), second = m.Put(Filled(70000, 1));
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(m.nccl.ncclAllReduce(At(first), At(first), 100, kNcclFloat32, kNcclSum, m.comm, m.stream), 0);
      EXPECT_EQ(m.nccl.ncclAllReduce(At(second), At(second), 70000, kNcclFloat32, kNcclSum, m.comm, other), 0);
    }
    EXPECT_EQ(m.cuda.cuEventRecord(event, other), 0);
    EXPECT_EQ(m.cuda.cuStreamWaitEvent(m.stream, event, 0), 0);
    EXPECT(m.Get(first, 100) == Filled(100, m.size == 1 ? 1 : 1024));
    EXPECT(m.Get(second, 70000) == Filled(70000, m.size == 1 ? 1 : 1024));
  });
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(nccl_contract_scaled_sums) {
  const Fakes fakes;
  WithMembers(2, [](Member& m) {
    float factor = m.rank == 0 ? 0.5f : 0.25f;
    int op = 0;
    EXPECT_EQ(m.nccl.ncclRedOpCreatePreMulSum(&op, &factor, kNcclFloat32, 1, m.comm), 0);
    factor = 0;  // it was read
    const uint64_t data = m.Put(Filled(100, 8));
    EXPECT_EQ(m.nccl.ncclAllReduce(At(data), At(data), 100, kNcclFloat32, op, m.comm, m.stream), 0);
    EXPECT_EQ(m.nccl.ncclRedOpDestroy(op, m.comm), 0);
    EXPECT(m.Get(data, 100) == Filled(100, m.size == 1 ? 4 : 6));
  });
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(nccl_contract_all_to_all_is_one_group) {
  const Fakes fakes;
  WithMembers(2, [](Member& m) {
    const size_t count = 20001;  // to rank r: r times that and one more
    std::vector<uint64_t> from, to;
    const auto sent = [&](int source, int target) { return count * target + 1 + source; };
    for (int r = 0; r < m.size; ++r) {
      from.push_back(m.Put(Filled(sent(m.rank, r), 10 * m.rank + r)));
      to.push_back(m.cuda.NewMemory(sent(r, m.rank) * 4));
    }
    EXPECT_EQ(m.nccl.ncclGroupStart(), 0);
    for (int r = 0; r < m.size; ++r) {
      EXPECT_EQ(m.nccl.ncclSend(At(from[r]), sent(m.rank, r), kNcclFloat32, r, m.comm, m.stream), 0);
      EXPECT_EQ(m.nccl.ncclRecv(At(to[r]), sent(r, m.rank), kNcclFloat32, r, m.comm, m.stream), 0);
    }
    EXPECT_EQ(m.nccl.ncclGroupEnd(), 0);
    for (int r = 0; r < m.size; ++r) EXPECT(m.Get(to[r], sent(r, m.rank)) == Filled(sent(r, m.rank), 10 * r + m.rank));
  });
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(nccl_contract_without_blocking) {
  const Fakes fakes;
  const UniqueId id = NewId();
  const int size = OverFakes() ? 2 : 1;
  RanksAsThreads(size, [&](int r) {
    Member m(id, r, size, r, false);
    const uint64_t data = m.Put(Filled(100, 1));
    // A way that is gone for the first time may be made meanwhile; then the call is on the stream.
    for (int i = 0; i < 3; ++i) {
      const int code = m.nccl.ncclAllReduce(At(data), At(data), 100, kNcclFloat32, kNcclSum, m.comm, m.stream);
      EXPECT(code == 0 || code == 7);
      EXPECT_EQ(m.nccl.Settled(m.comm), 0);
    }
    EXPECT(m.Get(data, 100) == Filled(100, size == 1 ? 1 : 8));
    const int code = m.nccl.ncclCommFinalize(m.comm);
    EXPECT(code == 0 || code == 7);
    EXPECT_EQ(m.nccl.Settled(m.comm), 0);
  });
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(nccl_contract_arguments) {
  const Nccl nccl;
  int version = 0;
  EXPECT_EQ(nccl.ncclGetVersion(&version), 0);
  EXPECT(version >= 21800);
  EXPECT(std::string(nccl.ncclGetErrorString(4)).find("invalid argument") != std::string::npos);
  WithMembers(1, [](Member& m) {
    NcclConfig config;
    config.magic = 1;
    void* other = nullptr;
    EXPECT_EQ(m.nccl.ncclCommInitRankConfig(&other, 1, NewId(), 0, &config), 4);
    const uint64_t data = m.Put(Filled(4, 1));
    EXPECT_EQ(m.nccl.ncclAllReduce(At(data), At(data), 4, 99, kNcclSum, m.comm, m.stream), 4);
    EXPECT(std::string(m.nccl.ncclGetLastError(m.comm)) != "");
    int count = 0, rank = -1;
    EXPECT_EQ(m.nccl.ncclCommCount(m.comm, &count), 0);
    EXPECT_EQ(m.nccl.ncclCommUserRank(m.comm, &rank), 0);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(rank, 0);
  });
}

// ---- more than one member, and what tests do to them

TEST(fake_nccl_whoever_does_not_come_is_waited_for_until_the_abort) {
  NEEDS_FAKES();
  const Fakes fakes;
  WithMembers(2, [&](Member& m) {
    const uint64_t data = m.Put(Filled(100, 1)), other = m.Put(Filled(100, 2)), both = m.Put(Filled(100, 3));
    EXPECT_EQ(m.nccl.ncclAllReduce(At(both), At(both), 100, kNcclFloat32, kNcclSum, m.comm, m.stream), 0);
    EXPECT_EQ(m.cuda.cuStreamSynchronize(m.stream), 0);
    if (m.rank == 0) {
      EXPECT_EQ(m.nccl.ncclAllReduce(At(data), At(data), 100, kNcclFloat32, kNcclSum, m.comm, m.stream), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(m.cuda.cuStreamQuery(m.stream), 600);
      const auto begin = steady_clock::now();
      std::thread aborts([&] { EXPECT_EQ(m.nccl.ncclCommAbort(m.comm), 0); });
      EXPECT_EQ(m.cuda.cuStreamSynchronize(m.stream), 0);
      EXPECT(MsSince(begin) >= 4);
      aborts.join();
      EXPECT(MsSince(begin) >= 20);
      EXPECT(m.Get(data, 100) != Filled(100, 1));  // poison
      EXPECT(m.Get(other, 100) == Filled(100, 2));
      m.comm = nullptr;
    }
  });
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(fake_nccl_hangs) {
  NEEDS_FAKES();
  const Fakes fakes;
  WithMembers(2, [&](Member& m) {
    const uint64_t data = m.Put(Filled(100, 1));
    fakes.fake_nccl_hang(1);
    EXPECT_EQ(m.nccl.ncclAllReduce(At(data), At(data), 100, kNcclFloat32, kNcclSum, m.comm, m.stream), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(m.cuda.cuStreamQuery(m.stream), 600);
    if (m.rank == 1) fakes.fake_nccl_async_error(6);
    while (m.nccl.Settled(m.comm) != 6) std::this_thread::yield();
    EXPECT_EQ(m.nccl.ncclCommAbort(m.comm), 0);
    EXPECT_EQ(m.cuda.cuStreamSynchronize(m.stream), 0);
    m.comm = nullptr;
  });
  fakes.fake_nccl_hang(0);
  fakes.fake_nccl_async_error(0);
  EXPECT_EQ(fakes.NewFault(), "");
}

TEST(fake_nccl_different_calls) {
  NEEDS_FAKES();
  const Fakes fakes;
  WithMembers(2, [](Member& m) {
    const uint64_t data = m.Put(Filled(100, 1));
    EXPECT_EQ(m.nccl.ncclAllReduce(At(data), At(data), 99 + m.rank, kNcclFloat32, kNcclSum, m.comm, m.stream), 0);
    EXPECT(m.Get(data, 99) != Filled(99, 2));
  });
  EXPECT(fakes.NewFault().find("another member has called something else") != std::string::npos);
}

TEST(fake_nccl_late_communicators) {
  NEEDS_FAKES();
  const Fakes fakes;
  const Cuda cuda;
  const Nccl nccl;
  const UniqueId id = NewId();
  EXPECT_EQ(access(id.bytes + std::strlen("fake_nccl:"), F_OK), 0);
  cuda.Use(0);
  void *stream = cuda.NewStream(), *comm = nullptr;
  NcclConfig config;
  config.blocking = 0;
  EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, 2, id, 0, &config), 7);
  int state = 0;
  EXPECT_EQ(nccl.ncclCommGetAsyncError(comm, &state), 0);
  EXPECT_EQ(state, 7);
  const uint64_t data = cuda.NewMemory(4);
  EXPECT_EQ(nccl.ncclAllReduce(At(data), At(data), 1, kNcclFloat32, kNcclSum, comm, stream), 4);
  std::thread([&] { const Member other(id, 1, 2, 1, false); }).join();
  EXPECT_EQ(nccl.Settled(comm), 0);
  EXPECT(access(id.bytes + std::strlen("fake_nccl:"), F_OK) != 0);
  // The first call is not on the stream when it returns.
  fakes.fake_cuda_record_start();
  EXPECT_EQ(nccl.ncclAllReduce(At(data), At(data), 1, kNcclFloat32, kNcclSum, comm, stream), 7);
  EXPECT_EQ(fakes.Record(), "");
  EXPECT_EQ(nccl.Settled(comm), 0);
  EXPECT(fakes.Record().find("allreduce 1 float32") != std::string::npos);
  EXPECT_EQ(nccl.ncclCommAbort(comm), 0);
  EXPECT_EQ(fakes.NewFault(), "");
  EXPECT_EQ(nccl.ncclCommGetAsyncError(comm, &state), 4);
  EXPECT(fakes.NewFault() != "");
}

TEST(fake_nccl_two_members_on_one_gpu) {
  NEEDS_FAKES();
  const UniqueId id = NewId();
  RanksAsThreads(2, [&](int r) {
    const Cuda cuda;
    const Nccl nccl;
    cuda.Use(0);
    void* comm = nullptr;
    NcclConfig config;
    config.blocking = 0;
    EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, 2, id, r, &config), 7);
    EXPECT_EQ(nccl.Settled(comm), 5);
    EXPECT(std::string(nccl.ncclGetLastError(comm)).find("Duplicate GPU detected") != std::string::npos);
    EXPECT_EQ(nccl.ncclCommAbort(comm), 0);
  });
}

TEST(fake_nccl_fails_on_request) {
  NEEDS_FAKES();
  const Fakes fakes;
  WithMembers(1, [&](Member& m) {
    const uint64_t data = m.Put(Filled(1, 1));
    fakes.fake_nccl_fail_next("ncclAllReduce", 3);
    EXPECT_EQ(m.nccl.ncclAllReduce(At(data), At(data), 1, kNcclFloat32, kNcclSum, m.comm, m.stream), 3);
    EXPECT_EQ(m.nccl.ncclAllReduce(At(data), At(data), 1, kNcclFloat32, kNcclSum, m.comm, m.stream), 0);
  });
}

// ---- processes

void SumOverProcesses(const UniqueId& id, int rank) {
  Member m(id, rank, 2, 0);
  for (const size_t count : {size_t{10}, size_t{300000}}) {
    const uint64_t data = m.Put(Filled(count, rank + 1)), out = m.cuda.NewMemory(count * 4);
    EXPECT_EQ(m.nccl.ncclAllReduce(At(data), At(out), count, kNcclFloat32, kNcclSum, m.comm, m.stream), 0);
    EXPECT(m.Get(out, count) == Filled(count, 3));
  }
}

// Does nothing but in the process that the next test starts.
TEST(fake_nccl_member_in_the_other_process) {
  const char* text = std::getenv("HVD_TEST_NCCL_MEMBER");
  if (text == nullptr) return;
  UniqueId id = {};
  std::snprintf(id.bytes, sizeof id.bytes, "%s", text);
  SumOverProcesses(id, 1);
  EXPECT_EQ(Fakes().fake_cuda_faults() + Fakes().fake_nccl_faults(), 0);
}

TEST(fake_nccl_two_processes) {
  NEEDS_FAKES();
  const Fakes fakes;
  const UniqueId id = NewId();
  std::vector<std::string> variables = {std::string("HVD_TEST_NCCL_MEMBER=") + id.bytes, "FAKE_CUDA_UUID=other"};
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  environment.push_back(nullptr);
  char program[] = "/proc/self/exe", filter[] = "fake_nccl_member_in_the_other_process";
  char* arguments[] = {program, filter, nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t other = 0;
  EXPECT_EQ(posix_spawn(&other, program, &quiet, nullptr, arguments, environment.data()), 0);
  posix_spawn_file_actions_destroy(&quiet);
  SumOverProcesses(id, 0);
  int status = -1;
  EXPECT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(fakes.NewFault(), "");
}

}  // namespace
}  // namespace hvd::test::backend_cuda_fake_nccl
