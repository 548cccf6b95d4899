// Member: this rank's part in the communicator of a set. Made without waiting for the others; nothing blocks but Leave.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "backend/cuda/context.h"
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

  // Waits until the last call, `function`, has ended everywhere that it must: the first one when all members have come.
  Task Settled(const char* function) const;
  const Library& library() const { return *library_; }
  Communicator get() const { return communicator_; }
  int index() const { return place_.index; }
  int size() const { return place_.size; }
  // The operation that adds up and multiplies, for a factor that the type can hold. For the next call: those made
  // before may be gone.
  Result<int> ScaledSum(DType dtype, double factor);

  // Frees it, for up to a second, with its work undone if `abort`. By any thread, once; the device may work until then.
  void Leave(bool abort);

 private:
  Member(std::shared_ptr<Library> library, std::shared_ptr<const cuda::Context> context, const Place& place)
      : library_(std::move(library)), context_(std::move(context)), place_(place) {}

  const std::shared_ptr<Library> library_;
  const std::shared_ptr<const cuda::Context> context_;
  const Place place_;
  Communicator communicator_ = nullptr;
  bool left_ = false;
  std::map<std::pair<DType, uint64_t>, int> sums_;  // by the bits of the factor: a NaN is equal to itself
};

}  // namespace hvd::backend::nccl
