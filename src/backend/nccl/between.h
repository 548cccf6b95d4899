// Between: the way of a share over the hosts: from the device to pinned memory, there exchanged with the counterparts
// on the other hosts by the host's ways, and back. One share at a time.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/nccl/queues.h"
#include "backend/nccl/share.h"

namespace hvd::backend::nccl {

class Between {
 public:
  // `backends`: of which one runs what goes between the hosts. Outlives this.
  Between(const Registry* backends, std::shared_ptr<Queues> queues) : backends_(backends), queues_(std::move(queues)) {}

  // Gives the share its place in pinned memory, when the one before has left it.
  Task Prepare(Share* share);
  // From the device. Ends when it is there.
  Task Take(const Call& call, const Share& share);
  // Does with the shares of the counterparts what the batch does with its tensors: an allreduce, or a broadcast from
  // the host of its root. In place.
  Task Exchange(const Call& call, const Share& share);
  // Puts the way back to the device on the queue.
  Status Return(const Call& call, const Share& share);

 private:
  const Registry* const backends_;
  const std::shared_ptr<Queues> queues_;
  std::unique_ptr<cuda::PinnedMemory> pinned_;  // once in use
  std::shared_ptr<cuda::Event> free_;           // when the last share has left it
  std::vector<std::byte> scratch_;              // of the ways between the hosts
};

}  // namespace hvd::backend::nccl
