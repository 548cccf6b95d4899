// Groups, and NCCL's functions that move data.
#include "native/backend/cuda/fake/nccl/fake_nccl_group.h"

#include <cstring>
#include <map>
#include <thread>
#include <utility>

namespace fake {
namespace {

struct ScaledSum {
  int type = 0;
  unsigned char scalar[8] = {};
  const void* on_device = nullptr;
};
// Never destroyed: streams still work while the process ends.
struct Registry {
  std::mutex mutex;  // guards all of this
  std::map<void*, std::shared_ptr<Comm>> comms;
  uintptr_t handles = 0x8000;
  std::map<std::pair<void*, int>, ScaledSum> scaled_sums;  // by communicator and number
  int scaled = kScaledSum;
};
Registry& TheRegistry() {
  static auto* const kRegistry = new Registry;
  return *kRegistry;
}

struct Queued {
  std::shared_ptr<Comm> comm;
  void* stream = nullptr;
  Request request;
};
struct Group {
  int depth = 0, code = kSuccess;
  std::vector<Queued> calls;
  std::vector<std::function<int()>> later;
};
thread_local Group group;

// Each communicator gets its calls as one launch.
int EndGroup() {
  Group ended;
  std::swap(ended, group);
  if (ended.code != kSuccess) return ended.code;
  int code = kSuccess;
  for (const auto& what : ended.later) {
    if (const int result = what(); result != kSuccess) code = result;
  }
  while (!ended.calls.empty() && (code == kSuccess || code == kInProgress)) {
    const Queued first = ended.calls.front();
    std::vector<Request> requests;
    std::vector<Queued> others;
    for (Queued& call : ended.calls) {
      if (call.comm != first.comm) {
        others.push_back(std::move(call));
        continue;
      }
      if (call.stream != first.stream) Fault("a group puts one communicator on two streams");
      requests.push_back(call.request);
    }
    ended.calls = std::move(others);
    if (const int result = Launch(first.comm, first.stream, std::move(requests)); result != kSuccess) code = result;
  }
  return code;
}

// What is wrong with a request; null: nothing.
const char* WhyInvalid(const Comm& comm, const Request& r) {
  if (r.type < 0 || r.type >= kTypes) return "invalid type";
  if (r.op < kSum || r.op > kScaledSum) return "invalid reduction operation";
  if (r.root < 0 || r.root >= comm.size) return "invalid root or peer";
  return nullptr;
}

// Gives the request its scalar. One that there is not, or of another type, is no reduction operation.
void FindScaledSum(void* handle, Request& r) {
  if (r.op < kScaledSum) return;
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  const auto found = TheRegistry().scaled_sums.find({handle, r.op});
  const bool known = found != TheRegistry().scaled_sums.end() && found->second.type == r.type;
  r.op = known ? kScaledSum : -1;
  if (!known) return;
  std::memcpy(r.scalar, found->second.scalar, sizeof r.scalar);
  r.device_scalar = found->second.on_device;
}

int Add(void* handle, void* stream, Request request) {
  const std::shared_ptr<Comm> comm = FindReady(handle);
  if (comm == nullptr) return group.depth > 0 ? group.code = kInvalidArgument : kInvalidArgument;
  FindScaledSum(handle, request);
  int code = kSuccess;
  if (const char* why = WhyInvalid(*comm, request)) {
    code = Error(kInvalidArgument, why);
  } else if (comm->state != kSuccess) {
    code = comm->state;
  }
  if (code != kSuccess) return group.depth > 0 ? group.code = code : code;
  const bool moves = request.count > 0 || request.kind == kSend || request.kind == kReceive;
  if (moves) group.calls.push_back({comm, stream, request});
  return group.depth > 0 ? kSuccess : EndGroup();
}

}  // namespace

void* Register(const std::shared_ptr<Comm>& comm) {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  void* handle = reinterpret_cast<void*>(TheRegistry().handles += 16);
  TheRegistry().comms[handle] = comm;
  return handle;
}
std::shared_ptr<Comm> Find(void* handle) {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  const auto found = TheRegistry().comms.find(handle);
  if (found != TheRegistry().comms.end()) return found->second;
  Fault("a communicator that does not exist, or not any more");
  Error(kInvalidArgument, "comm argument is not a communicator");
  return nullptr;
}
std::shared_ptr<Comm> FindReady(void* handle) {
  std::shared_ptr<Comm> comm = Find(handle);
  if (comm == nullptr || comm->state != kInProgress) return comm;
  Error(kInvalidArgument, "Attempt to use communicator before the previous operation returned ncclSuccess");
  return nullptr;
}
void Forget(void* handle) {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  TheRegistry().comms.erase(handle);
}
int Communicators(const std::function<int(const Comm&)>& of) {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  int sum = 0;
  for (const auto& [handle, comm] : TheRegistry().comms) sum += of(*comm);
  return sum;
}

int AtGroupEnd(std::function<int()> what) {
  if (group.depth == 0) return what();
  group.later.push_back(std::move(what));
  return kSuccess;
}
int WaitWhileInProgress(const Comm& comm) {
  while (comm.state == kInProgress && !comm.aborted) std::this_thread::sleep_for(std::chrono::microseconds(200));
  return comm.state;
}

}  // namespace fake

using namespace fake;  // NOLINT: NCCL's functions have to be global

EXPORT int ncclGroupStart() {
  ENTER();
  ++group.depth;
  return kSuccess;
}
EXPORT int ncclGroupEnd() {
  ENTER();
  if (group.depth == 0) return Error(kInvalidUsage, "ncclGroupEnd: not in a group call.");
  return --group.depth > 0 ? kSuccess : EndGroup();
}
EXPORT int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, void* comm, void* stream) {
  ENTER();
  return Add(comm, stream, {kAllReduce, from, to, count, type, op});
}
EXPORT int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, void* comm, void* stream) {
  ENTER();
  return Add(comm, stream, {kBroadcast, from, to, count, type, kSum, root});
}
EXPORT int ncclReduce(const void* from, void* to, size_t count, int type, int op, int root, void* comm, void* stream) {
  ENTER();
  return Add(comm, stream, {kReduce, from, to, count, type, op, root});
}
EXPORT int ncclAllGather(const void* from, void* to, size_t count, int type, void* comm, void* stream) {
  ENTER();
  return Add(comm, stream, {kAllGather, from, to, count, type, kSum});
}
EXPORT int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op, void* comm, void* stream) {
  ENTER();
  return Add(comm, stream, {kReduceScatter, from, to, count, type, op});
}
EXPORT int ncclSend(const void* from, size_t count, int type, int peer, void* comm, void* stream) {
  ENTER();
  return Add(comm, stream, {kSend, from, nullptr, count, type, kSum, peer});
}
EXPORT int ncclRecv(void* to, size_t count, int type, int peer, void* comm, void* stream) {
  ENTER();
  return Add(comm, stream, {kReceive, nullptr, to, count, type, kSum, peer});
}
// residence: 0 = the scalar is on the device and is read when it is used; 1 = on the host, read now.
EXPORT int ncclRedOpCreatePreMulSum(int* made, void* scalar, int type, int residence, void* handle) {
  ENTER();
  if (FindReady(handle) == nullptr || type < 0 || type >= kTypes) return kInvalidArgument;
  ScaledSum sum;
  sum.type = type;
  if (residence == 0) {
    sum.on_device = scalar;
  } else {
    std::memcpy(sum.scalar, scalar, SizeOf(type));
  }
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  *made = TheRegistry().scaled++;
  TheRegistry().scaled_sums[{handle, *made}] = sum;
  return kSuccess;
}
EXPORT int ncclRedOpDestroy(int op, void* handle) {
  ENTER();
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  if (TheRegistry().scaled_sums.erase({handle, op}) == 0) return Error(kInvalidArgument, "no such reduction operation");
  return kSuccess;
}
EXPORT int fake_nccl_scaled_sums() {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  return static_cast<int>(TheRegistry().scaled_sums.size());
}
