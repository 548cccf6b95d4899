// Member: this rank's part in the communicator of a set.
//
// Two communicators of NCCL's. The root does not block, so that a rank that dies while it is made can be survived; but
// NCCL starts a thread for every call on such a one, which costs the caller 0.15 ms (docs/gpu.md). So the root serves
// to make the other one, which blocks: its calls return in microseconds, when their work is on the stream. They wait
// for the other members only where NCCL connects to them in a way that it has not used yet. So calls that have not been
// made before, in the same group and of the same sizes, are made in a thread of our own, and the driver never waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backend/cuda/driver/context.h"
#include "backend/nccl/library.h"
#include "base/dtype.h"
#include "base/task.h"

namespace hvd::backend::nccl {

class Member {
 public:
  struct Place {
    int size, index;
    UniqueId id;
    int max_ctas;  // 0: NCCL chooses
  };
  // Collective over the members, who need not have come when it returns.
  static Result<std::shared_ptr<Member>> Begin(std::shared_ptr<Library> library,
                                               std::shared_ptr<const cuda::Context> context, const Place& place);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Collective: waits until all members have come and the communicator can be used.
  Task Ready();
  // Makes calls of NCCL that begin together, and waits until their work is on the stream. `function` is for messages.
  Task Put(std::vector<Operation> operations, Stream stream, const char* function);
  int index() const { return place_.index; }
  int size() const { return place_.size; }
  // The operation that adds up and multiplies, for a factor that the type can hold. For the next call: those made
  // before may be gone.
  Result<int> ScaledSum(DType dtype, double factor);

  // Frees it, with its work undone if `abort`: takes a second for each communicator, and longer where a call does not
  // return. By any thread, once; the device may work until then.
  void Leave(bool abort);

 private:
  // Calls that another thread makes.
  struct Away {
    enum State { kNotBegun, kCalledOff, kBegun, kInNccl, kEnded };
    std::atomic<int> state{kNotBegun};
    Status status;  // once they have ended

    bool ended() const { return state.load(std::memory_order_acquire) == kEnded; }
    void CallAll(const Library& library, const cuda::Context& context, Communicator on,
                 const std::vector<Operation>& operations, Stream stream);
  };

  Member(std::shared_ptr<Library> library, std::shared_ptr<const cuda::Context> context, const Place& place)
      : library_(std::move(library)), context_(std::move(context)), place_(place) {}
  Task Settled(const char* function, Communicator of) const;
  bool IsNew(const std::vector<Operation>& operations);
  Task PutFromThread(std::vector<Operation> operations, Stream stream);
  void CallOff();
  void JoinThread();

  const std::shared_ptr<Library> library_;
  const std::shared_ptr<const cuda::Context> context_;
  const Place place_;
  Communicator root_ = nullptr;
  Communicator communicator_ = nullptr;  // until `ready_` NCCL may be about to set it
  bool ready_ = false, left_ = false;
  std::unordered_set<uint64_t> known_;   // groups of calls that have been made, as IsNew numbers them
  std::set<std::pair<int, int>> peers_;  // kinds of messages and peers, likewise
  std::thread thread_;                   // makes the calls of away_, or has
  std::shared_ptr<Away> away_;
  std::map<std::pair<DType, uint64_t>, int> sums_;  // by the bits of the factor: a NaN is equal to itself
};

}  // namespace hvd::backend::nccl
