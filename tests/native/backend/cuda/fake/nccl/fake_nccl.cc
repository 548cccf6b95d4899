// An NCCL for tests, which works with the fake CUDA driver beside it. Its members are threads or processes of one host.
// Here: NCCL's functions about communicators.
#include "native/backend/cuda/fake/nccl/fake_nccl.h"

#include <climits>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "native/backend/cuda/fake/errands.h"
#include "native/backend/cuda/fake/nccl/fake_nccl_comm.h"
#include "native/backend/cuda/fake/nccl/fake_nccl_group.h"

namespace fake {
namespace {

struct UniqueId {
  char bytes[128];
};
// ncclConfig_t up to what all versions have that know of non-blocking communicators.
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};
constexpr unsigned kMagic = 0xcafebeef;

int Init(void** made, int size, const UniqueId& id, int rank, bool blocking) {
  *made = nullptr;
  if (size < 1 || size > kMostMembers || rank < 0 || rank >= size) return Error(kInvalidArgument, "invalid rank");
  if (TheDriver() == nullptr) return Error(kUnhandledCudaError, "no " FAKE_DRIVER " beside the fake NCCL");
  auto comm = std::make_shared<Comm>();
  comm->id = std::string(id.bytes, strnlen(id.bytes, sizeof id.bytes));
  comm->rank = rank;
  comm->size = size;
  comm->blocking = blocking;
  comm->device = TheDriver()->current(comm->uuid);
  *made = Register(comm);
  TheErrands().Begin([comm] { Join(comm); });
  return blocking ? AtGroupEnd([comm] { return WaitWhileInProgress(*comm); }) : kInProgress;
}

// Waits until its operations have ended. Its state then.
int Drain(Comm& comm) {
  const int state = WaitWhileInProgress(comm);
  while (comm.operations > 0 && !comm.Leaves()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  return state;
}

// This member goes. Where members go together, waits for the others.
void Leave(Comm& comm, bool waits) {
  if (comm.meeting == nullptr) return;
  comm.meeting->members[comm.rank].left = 1;
  Ring(*comm.meeting);
  for (int m = 0; waits && m < comm.size; ++m)
    Await(*comm.meeting, [&] { return comm.meeting->members[m].left == 1; }, [&] { return comm.Leaves(); });
}

}  // namespace
}  // namespace fake

using namespace fake;  // NOLINT: NCCL's functions have to be global

EXPORT int ncclGetVersion(int* version) {
  ENTER();
  static const int kVersion = static_cast<int>(Number("FAKE_NCCL_VERSION", FAKE_VERSION));
  *version = kVersion;
  return kSuccess;
}
EXPORT int ncclGetUniqueId(UniqueId* id) {
  ENTER();
  const std::string text = MakeMeeting();
  if (text.empty()) return Error(kSystemError, "no shared memory for a communicator");
  std::memset(id->bytes, 0, sizeof id->bytes);
  std::memcpy(id->bytes, text.data(), text.size());
  return kSuccess;
}
EXPORT int ncclCommInitRank(void** made, int size, UniqueId id, int rank) {
  ENTER();
  return Init(made, size, id, rank, true);
}
EXPORT int ncclCommInitRankConfig(void** made, int size, UniqueId id, int rank, const Config* config) {
  ENTER();
  bool blocking = true;
  if (config != nullptr) {
    if (config->magic != kMagic || config->size < sizeof(Config))
      return Error(kInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    if (config->blocking != INT_MIN && config->blocking != 0 && config->blocking != 1)
      return Error(kInvalidArgument, "Invalid config blocking attribute value");
    blocking = config->blocking != 0;
  }
  return Init(made, size, id, rank, blocking);
}
// Into one part, in the order of the ranks.
EXPORT int ncclCommSplit(void* handle, int color, int key, void** made, const Config* config) {
  ENTER();
  const std::shared_ptr<Comm> comm = FindReady(handle);
  if (comm == nullptr || config == nullptr || config->magic != kMagic) return kInvalidArgument;
  if (color != 0 || key != comm->rank) return Error(kInvalidArgument, "the fake keeps the members and their order");
  *made = nullptr;
  auto child = std::make_shared<Comm>();
  child->rank = comm->rank;
  child->size = comm->size;
  child->device = comm->device;
  std::memcpy(child->uuid, comm->uuid, sizeof child->uuid);
  child->blocking = config->blocking != 0;
  child->parent = comm;
  comm->state = kInProgress;
  TheErrands().Begin([comm, child, made] {
    child->id = IdOfDuplicate(*comm);
    Join(child);
    child->parent = nullptr;
    const int state = child->state;
    if (state == kSuccess) *made = Register(child);
    comm->state = state;
  });
  return comm->blocking ? AtGroupEnd([comm] { return WaitWhileInProgress(*comm); }) : kInProgress;
}
EXPORT int ncclCommGetAsyncError(void* handle, int* code) {
  ENTER();
  const std::shared_ptr<Comm> comm = Find(handle);
  if (comm == nullptr) return kInvalidArgument;
  *code = AsyncError() != 0 ? AsyncError() : comm->state.load();
  return kSuccess;
}
EXPORT int ncclCommFinalize(void* handle) {
  ENTER();
  const std::shared_ptr<Comm> comm = FindReady(handle);
  if (comm == nullptr) return kInvalidArgument;
  if (comm->blocking) return Drain(*comm);
  const int state = comm->state.exchange(kInProgress);
  TheErrands().Begin([comm, state] {
    while (comm->operations > 0 && !comm->aborted) std::this_thread::sleep_for(std::chrono::microseconds(200));
    comm->state = state;
  });
  return kInProgress;
}
EXPORT int ncclCommDestroy(void* handle) {
  ENTER();
  const std::shared_ptr<Comm> comm = Find(handle);
  if (comm == nullptr) return kInvalidArgument;
  Drain(*comm);
  Leave(*comm, LeaveTogether());
  Forget(handle);
  return kSuccess;
}
// What it has on the device leaves after some milliseconds; the call itself takes longer.
EXPORT int ncclCommAbort(void* handle) {
  ENTER();
  const std::shared_ptr<Comm> comm = Find(handle);
  if (comm == nullptr) return kInvalidArgument;
  Forget(handle);
  comm->aborted_at = std::chrono::steady_clock::now();
  comm->aborted = true;
  const bool busy = comm->state == kInProgress;
  if (!busy) Leave(*comm, false);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  while (busy && comm->state == kInProgress) std::this_thread::yield();  // as NCCL joins the thread that makes it
  return kSuccess;
}
EXPORT int ncclCommCount(void* handle, int* count) {
  ENTER();
  const std::shared_ptr<Comm> comm = FindReady(handle);
  if (comm == nullptr) return kInvalidArgument;
  *count = comm->size;
  return kSuccess;
}
EXPORT int ncclCommUserRank(void* handle, int* rank) {
  ENTER();
  const std::shared_ptr<Comm> comm = FindReady(handle);
  if (comm == nullptr) return kInvalidArgument;
  *rank = comm->rank;
  return kSuccess;
}
EXPORT int ncclCommCuDevice(void* handle, int* device) {
  ENTER();
  const std::shared_ptr<Comm> comm = FindReady(handle);
  if (comm == nullptr) return kInvalidArgument;
  *device = comm->device;
  return kSuccess;
}
EXPORT const char* ncclGetErrorString(int code) {
  static const char* const kWords[] = {"no error",
                                       "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                       "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                       "internal error - please report this issue to the NCCL developers",
                                       "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                       "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
  return code >= 0 && code <= kInProgress ? kWords[code] : "unknown result code";
}
EXPORT const char* ncclGetLastError(void*) {
  thread_local std::string words;
  words = LastError();
  return words.c_str();
}

EXPORT int fake_nccl_communicators() {
  return Communicators([](const Comm&) { return 1; });
}
EXPORT int fake_nccl_operations() {
  return Communicators([](const Comm& comm) { return comm.operations.load(); });
}
