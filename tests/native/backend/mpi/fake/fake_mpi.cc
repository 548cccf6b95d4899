// An MPI library for tests, built once with each of the three styles of handles (FAKE_STYLE as in hvd_mpi_style). Its
// ranks are threads of one process. Nothing is done before all members have come and each has tested some times; until
// then a result is poison, and who reads or writes what MPI works on is counted as a fault.
#include "native/backend/mpi/fake/fake_mpi.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kTestsBefore = 3;  // of each member, once all have come
constexpr unsigned char kPoison = 0xEE;
constexpr size_t kMost = 1 << 14;

#if FAKE_STYLE == 1
using H = int;
H HandleOf(int kind, size_t i) { return static_cast<int>(0x84000000u | (kind << 20) | i); }
size_t IndexOf(H h) { return static_cast<uint32_t>(h) & 0xfffff; }
#elif FAKE_STYLE == 2
using H = void*;
H HandleOf(int kind, size_t i) { return reinterpret_cast<H>(uintptr_t{0x1000} + (kind << 20) + i); }
size_t IndexOf(H h) { return (reinterpret_cast<uintptr_t>(h) - 0x1000) & 0xfffff; }
#else
using H = void*;
char objects[3][kMost];
H HandleOf(int kind, size_t i) { return &objects[kind][i]; }
size_t IndexOf(H h) { return (static_cast<char*>(h) - objects[0]) % kMost; }
#endif
enum Kind { kComm, kGroup, kRequest };

struct Comm {
  int team = 0, rank = 0;  // equal teams are one communicator
  uint64_t calls = 0;
};
// One member's part in an operation: bytes, but for allreduce.
struct Part {
  std::vector<unsigned char> sent;  // as it was
  const unsigned char* from = nullptr;
  unsigned char* to = nullptr;
  std::vector<int> sent_counts, sent_at, received_counts, received_at;
  size_t room = 0;
  int tests = 0;
};
struct Operation {
  std::map<int, Part> parts;
  int type = -1, op = -1, root = -1;  // allreduce; broadcast
};
struct Request {
  std::pair<int, uint64_t> operation;
  int rank = 0;
};

std::mutex mutex;  // guards all of this
std::condition_variable made;
std::deque<Comm> comms(1);
std::deque<std::vector<int>> teams;  // ranks, in the world that they come from
std::deque<std::vector<int>> groups(1);
std::deque<Request> requests(1);
std::map<std::pair<int, uint64_t>, Operation> operations;
std::map<std::vector<int>, std::pair<int, std::set<int>>> making;  // (team, ranks) -> new team, who has come
int faults = 0, fails_next = 0;
bool stalled = false;

int TypeOf(H type);
int OpOf(H op);
size_t SizeOf(int type) {
  static const size_t kSizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
  return kSizes[type];
}

template <class T>
void Combine(int op, const unsigned char* from, unsigned char* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, to + at, sizeof a);
    std::memcpy(&b, from + at, sizeof b);
    const T results[] = {static_cast<T>(a + b), static_cast<T>(a * b), std::min(a, b), std::max(a, b)};
    std::memcpy(to + at, &results[op], sizeof a);
  }
}
void CombineAs(int type, int op, const unsigned char* from, unsigned char* to, size_t bytes) {
  using Function = void (*)(int, const unsigned char*, unsigned char*, size_t);
  static const Function kFunctions[] = {Combine<uint8_t>,  Combine<int8_t>,  Combine<uint16_t>, Combine<int16_t>,
                                        Combine<uint32_t>, Combine<int32_t>, Combine<uint64_t>, Combine<int64_t>,
                                        Combine<float>,    Combine<double>};
  kFunctions[type](op, from, to, bytes);
}

int Begin(H comm, Part part, H* request, int type = -1, int op = -1, int root = -1) {
  std::lock_guard<std::mutex> lock(mutex);
  if (fails_next > 0) return fails_next--, 15;
  Comm& c = comms[IndexOf(comm)];
  const std::pair<int, uint64_t> key{c.team, c.calls++};
  Operation& operation = operations[key];
  operation.type = type;
  operation.op = op;
  operation.root = root;
  for (size_t i = 0; i < part.sent_counts.size(); ++i) {
    const size_t end = part.sent_at[i] + part.sent_counts[i];
    if (part.sent.size() < end) part.sent.resize(end);
  }
  if (!part.sent.empty()) std::memcpy(part.sent.data(), part.from, part.sent.size());
  for (size_t i = 0; i < part.received_counts.size(); ++i)
    part.room = std::max<size_t>(part.room, part.received_at[i] + part.received_counts[i]);
  if (part.to != nullptr) std::memset(part.to, kPoison, part.room);
  operation.parts[c.rank] = std::move(part);
  requests.push_back({key, c.rank});
  *request = HandleOf(kRequest, requests.size() - 1);
  return 0;
}

void Finish(Operation& operation, int rank) {
  Part& mine = operation.parts[rank];
  if (!mine.sent.empty() && std::memcmp(mine.sent.data(), mine.from, mine.sent.size()) != 0) ++faults;
  for (size_t i = 0; i < mine.room; ++i) {
    if (mine.to[i] == kPoison) continue;
    ++faults;
    break;
  }
  if (operation.type >= 0) {
    std::memcpy(mine.to, operation.parts[0].sent.data(), mine.room);
    for (auto& [other, part] : operation.parts) {
      if (other != 0) CombineAs(operation.type, operation.op, part.sent.data(), mine.to, mine.room);
    }
  } else if (operation.root >= 0) {
    if (rank != operation.root) std::memcpy(mine.to, operation.parts[operation.root].sent.data(), mine.room);
  } else {
    for (size_t m = 0; m < mine.received_counts.size(); ++m) {
      const Part& from = operation.parts[static_cast<int>(m)];
      const size_t lane = from.sent_counts.size() == 1 ? 0 : rank;
      if (from.sent_counts[lane] != mine.received_counts[m]) ++faults;
      if (mine.received_counts[m] > 0)
        std::memcpy(mine.to + mine.received_at[m], from.sent.data() + from.sent_at[lane], mine.received_counts[m]);
    }
  }
}

std::vector<int> Filled(int n, int value, int step = 0) {
  std::vector<int> all(n);
  for (int i = 0; i < n; ++i) all[i] = value + i * step;
  return all;
}
int SizeOfComm(H comm) {
  std::lock_guard<std::mutex> lock(mutex);
  return static_cast<int>(teams[comms[IndexOf(comm)].team].size());
}
Part PartOf(const void* from, void* to) {
  Part part;
  part.from = static_cast<const unsigned char*>(from);
  part.to = static_cast<unsigned char*>(to);
  return part;
}
std::vector<int> Copied(const int* numbers, int n) { return {numbers, numbers + n}; }

}  // namespace

#if FAKE_STYLE == 0
#define OBJECT(name) __attribute__((visibility("default"))) char ompi_mpi_##name[8] = {};
extern "C" {
OBJECT(byte)
OBJECT(errors_return)
OBJECT(uint8_t)
OBJECT(int8_t)
OBJECT(uint16_t)
OBJECT(int16_t)
OBJECT(uint32_t)
OBJECT(int32_t)
OBJECT(uint64_t)
OBJECT(int64_t)
OBJECT(float)
OBJECT(double)
OBJECT(op_sum)
OBJECT(op_prod)
OBJECT(op_min)
OBJECT(op_max)
}
namespace {
const H kTypes[] = {ompi_mpi_uint8_t, ompi_mpi_int8_t,   ompi_mpi_uint16_t, ompi_mpi_int16_t, ompi_mpi_uint32_t,
                    ompi_mpi_int32_t, ompi_mpi_uint64_t, ompi_mpi_int64_t,  ompi_mpi_float,   ompi_mpi_double};
const H kOps[] = {ompi_mpi_op_sum, ompi_mpi_op_prod, ompi_mpi_op_min, ompi_mpi_op_max};
}  // namespace
#else
namespace {
#if FAKE_STYLE == 1
const H kTypes[] = {0x4c00013b, 0x4c000137, 0x4c00023c, 0x4c000238, 0x4c00043d,
                    0x4c000439, 0x4c00083e, 0x4c00083a, 0x4c00040a, 0x4c00080b};
const H kOps[] = {0x58000003, 0x58000004, 0x58000002, 0x58000001};
#else
H Number(uintptr_t n) { return reinterpret_cast<H>(n); }
const H kTypes[] = {Number(0x241), Number(0x240), Number(0x249), Number(0x248), Number(0x251),
                    Number(0x250), Number(0x259), Number(0x258), Number(0x210), Number(0x214)};
const H kOps[] = {Number(0x21), Number(0x24), Number(0x22), Number(0x23)};
#endif
}  // namespace
#endif

namespace {
int TypeOf(H type) { return static_cast<int>(std::find(std::begin(kTypes), std::end(kTypes), type) - kTypes); }
int OpOf(H op) { return static_cast<int>(std::find(std::begin(kOps), std::end(kOps), op) - kOps); }
}  // namespace

// ---- what tests ask for

EXPORT void fake_world(int n, uint64_t* handles) {
  std::lock_guard<std::mutex> lock(mutex);
  teams.push_back(Filled(n, 0, 1));
  for (int r = 0; r < n; ++r) {
    comms.push_back({static_cast<int>(teams.size()) - 1, r});
    handles[r] = 0;
    const H handle = HandleOf(kComm, comms.size() - 1);
    std::memcpy(&handles[r], &handle, sizeof handle);
  }
}
EXPORT int fake_faults() {
  std::lock_guard<std::mutex> lock(mutex);
  return faults;
}
EXPORT void fake_fail_next(int n) {
  std::lock_guard<std::mutex> lock(mutex);
  fails_next = n;
}
EXPORT void fake_stall(int on) {
  std::lock_guard<std::mutex> lock(mutex);
  stalled = on != 0;
}

// ---- MPI

EXPORT int MPI_Error_string(int code, char* text, int* length) {
  *length = std::snprintf(text, 100, "the fake failed with %d", code);
  return 0;
}
EXPORT int MPI_Comm_group(H comm, H* group) {
  std::lock_guard<std::mutex> lock(mutex);
  groups.push_back(teams[comms[IndexOf(comm)].team]);
  *group = HandleOf(kGroup, groups.size() - 1);
  return 0;
}
EXPORT int MPI_Group_incl(H group, int n, const int* ranks, H* made_group) {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<int> some;
  for (int i = 0; i < n; ++i) some.push_back(groups[IndexOf(group)][ranks[i]]);
  groups.push_back(some);
  *made_group = HandleOf(kGroup, groups.size() - 1);
  return 0;
}
EXPORT int MPI_Group_free(H*) { return 0; }
EXPORT int MPI_Comm_set_errhandler(H, H) { return 0; }
EXPORT int MPI_Comm_create_group(H comm, H group, int, H* made_comm) {
  std::unique_lock<std::mutex> lock(mutex);
  const Comm base = comms[IndexOf(comm)];
  const std::vector<int> ranks = groups[IndexOf(group)];
  std::vector<int> key = ranks;
  key.push_back(-1 - base.team);
  auto& [team, come] = making[key];
  if (come.empty()) {
    teams.push_back(ranks);
    team = static_cast<int>(teams.size()) - 1;
  }
  come.insert(base.rank);
  made.notify_all();
  made.wait(lock, [&] { return come.size() == ranks.size(); });
  const auto place = std::find(ranks.begin(), ranks.end(), base.rank) - ranks.begin();
  comms.push_back({team, static_cast<int>(place)});
  *made_comm = HandleOf(kComm, comms.size() - 1);
  return 0;
}
EXPORT int MPI_Iallreduce(const void* from, void* to, int n, H type, H op, H comm, H* request) {
  Part part = PartOf(from, to);
  part.sent.resize(n * SizeOf(TypeOf(type)));
  part.room = part.sent.size();
  return Begin(comm, std::move(part), request, TypeOf(type), OpOf(op));
}
EXPORT int MPI_Iallgather(const void* from, int bytes, H, void* to, int, H, H comm, H* request) {
  Part part = PartOf(from, to);
  const int n = SizeOfComm(comm);
  part.sent_counts = {bytes};
  part.sent_at = {0};
  part.received_counts = Filled(n, bytes);
  part.received_at = Filled(n, 0, bytes);
  return Begin(comm, std::move(part), request);
}
EXPORT int MPI_Iallgatherv(const void* from, int bytes, H, void* to, const int* counts, const int* places, H, H comm,
                           H* request) {
  Part part = PartOf(from, to);
  const int n = SizeOfComm(comm);
  part.sent_counts = {bytes};
  part.sent_at = {0};
  part.received_counts = Copied(counts, n);
  part.received_at = Copied(places, n);
  return Begin(comm, std::move(part), request);
}
// Under a name of its own: all three libraries are loaded globally, and one must not call into another.
static int Alltoall(const void* from, void* to, H comm, H* request, Part part) {
  part.from = static_cast<const unsigned char*>(from);
  part.to = static_cast<unsigned char*>(to);
  return Begin(comm, std::move(part), request);
}
EXPORT int MPI_Ialltoallv(const void* from, const int* sent, const int* sent_at, H, void* to, const int* received,
                          const int* received_at, H, H comm, H* request) {
  Part part;
  const int n = SizeOfComm(comm);
  part.sent_counts = Copied(sent, n);
  part.sent_at = Copied(sent_at, n);
  part.received_counts = Copied(received, n);
  part.received_at = Copied(received_at, n);
  return Alltoall(from, to, comm, request, std::move(part));
}
EXPORT int MPI_Ialltoall(const void* from, int bytes, H, void* to, int, H, H comm, H* request) {
  Part part;
  const int n = SizeOfComm(comm);
  part.sent_counts = part.received_counts = Filled(n, bytes);
  part.sent_at = part.received_at = Filled(n, 0, bytes);
  return Alltoall(from, to, comm, request, std::move(part));
}
EXPORT int MPI_Ibcast(void* data, int bytes, H, int root, H comm, H* request) {
  Part part = PartOf(data, data);
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (comms[IndexOf(comm)].rank == root) {
      part.sent.resize(bytes);
      part.to = nullptr;
    } else {
      part.room = bytes;
    }
  }
  return Begin(comm, std::move(part), request, -1, -1, root);
}
EXPORT int MPI_Ibarrier(H comm, H* request) { return Begin(comm, Part(), request); }
EXPORT int MPI_Test(H* request, int* flag, void*) {
  std::lock_guard<std::mutex> lock(mutex);
  const Request& r = requests[IndexOf(*request)];
  Operation& operation = operations[r.operation];
  *flag = 0;
  if (stalled || operation.parts.size() < teams[r.operation.first].size()) return 0;
  if (++operation.parts[r.rank].tests < kTestsBefore) return 0;
  Finish(operation, r.rank);
  *flag = 1;
  return 0;
}
