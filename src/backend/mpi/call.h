// One batch on its way through MPI, as the files of the collectives see it, and how it is cut into pieces.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/mpi/waits.h"
#include "collective/batch.h"
#include "collective/channels/pieces.h"

namespace hvd::backend::mpi {

using collective::channels::Pieces;

// What MPI is given at once, on each of the two sides.
inline constexpr size_t kPieceBytes = 16 << 20;

struct Call {
  Job& job;
  const collective::Group& group;
  collective::Batch& batch;
  Handle comm = 0;

  int n() const { return group.size(); }
  const Library& library() const { return job.library(); }
  Workspace& work() const { return job.workspace(); }
  Handle* request() const { return &work().request; }
  size_t elem_bytes() const { return SizeOf(batch.dtype); }
};

// What one member gets from each or gives to each, piece by piece: in round k a lane of the same length for each
// member.
class Lanes {
 public:
  explicit Lanes(int n) : bytes_(std::max<size_t>(kPieceBytes / n / 64 * 64, 4096)) {}
  size_t rounds(size_t longest) const { return (longest + bytes_ - 1) / bytes_; }
  size_t bytes() const { return bytes_; }
  size_t begin(size_t k) const { return k * bytes_; }
  // Of a part of so many bytes, in round k.
  int count(size_t total, size_t k) const {
    return static_cast<int>(begin(k) < total ? std::min(bytes_, total - begin(k)) : 0);
  }

 private:
  const size_t bytes_;
};

// Both sides of the workspace, so large; kResource.
struct Sides {
  std::byte *send, *receive;
};
Result<Sides> Prepare(const Call& call, size_t send_bytes, size_t receive_bytes);

Task Allreduce(const Call& call);
Task Reducescatter(const Call& call);
Task Allgather(const Call& call);
Task Alltoall(const Call& call);
Task Broadcast(const Call& call);

}  // namespace hvd::backend::mpi
