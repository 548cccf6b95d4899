// A communicator of the fake NCCL, and the work that is put on streams for it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "native/backend/cuda/fake/nccl/fake_nccl_arithmetic.h"
#include "native/backend/cuda/fake/nccl/fake_nccl_control.h"
#include "native/backend/cuda/fake/nccl/fake_nccl_meeting.h"

namespace fake {

enum Kind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kReceive };

struct Comm {
  std::string id;
  int rank = 0, size = 0, device = 0;
  unsigned char uuid[16] = {};
  bool blocking = true;
  std::shared_ptr<Comm> parent;  // while it is made from another one
  std::shared_ptr<Meeting> meeting;
  std::atomic<int> state{kInProgress};  // what ncclCommGetAsyncError says
  std::atomic<int> operations{0};       // that have been called and have not ended
  std::atomic<bool> aborted{false};
  std::chrono::steady_clock::time_point aborted_at;  // set before

  std::mutex mutex;  // guards the next two
  uint64_t launches = 0;
  std::set<std::tuple<int, size_t, int, int, int>> connected;  // kind, count, type, operation, peer

  std::atomic<uint64_t> turn{0};  // the launch that runs: they do so in the order of the calls, whatever their streams
  // Of the launch that runs:
  uint64_t step = 0;
  bool broken = false;  // the members have called different things

  // Whether nobody is to wait for its members any more.
  bool GivenUp() const { return aborted || (parent != nullptr && parent->aborted); }
  // An abort takes effect some milliseconds later.
  bool Leaves() const {
    return aborted && std::chrono::steady_clock::now() >= aborted_at + std::chrono::milliseconds(5);
  }
};

struct Request {
  Kind kind = kAllReduce;
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  int type = 0, op = 0, root = 0;  // root: the peer of a send or receive
  unsigned char scalar[8] = {};    // of a scaled sum
  const void* device_scalar = nullptr;
};

// Members of a communicator tell one another who they are: the thread that makes it. Sets its state.
void Join(const std::shared_ptr<Comm>& comm);
// The unique id of the communicator that the members are going to make of this one, once.
std::string IdOfDuplicate(Comm& comm);
// Puts requests on a stream, as one launch. Returns ncclResult_t.
int Launch(const std::shared_ptr<Comm>& comm, void* stream, std::vector<Request> requests);
bool IsReduction(Kind kind);

}  // namespace fake
