// A small collective without messages of its own: what a rank brings, and what it makes of what all brought, be it to a
// meeting (express.h) or with the negotiation's marks (negotiation/values/payload.h). Every element is combined in rank
// order by the kernels of the long way, so the bits are the same.
//
// Cost: B bytes per rank; each rank stores B and loads what it needs of the others: n B (allreduce, allgather), B
// (broadcast, alltoall, reducescatter).
#pragma once

#include <span>

#include "collective/batch.h"
#include "engine/express/express.h"

namespace hvd::engine {

class SmallCollective {
 public:
  // An operation that was found valid, of rank `me` of n. *op must outlive this.
  SmallCollective(const hvd_op& op, int me, int n);

  // Adasum is not done this way, nor scalars where rows are asked for, nor what needs more room, nor an allreduce of so
  // much that it is faster when each rank combines a part for all (which takes a second meeting: crowded ranks are
  // better off with one).
  bool Fits(bool crowded) const;
  size_t bytes() const { return rows_ * row_bytes_; }  // of this rank's input
  size_t brought_bytes() const;                        // that Bring stores
  void Bring(std::byte* place) const;
  // Whether a member can have brought so many bytes that begin like this.
  bool Plausible(int member, std::span<const std::byte> brought) const;
  // Whether it gives the caller a tensor of another shape than its input: allgather, alltoall, reducescatter.
  bool has_result() const;
  // From what all brought: the result in the operation's output or, if has_result(), in *result, whose output and room
  // are the caller's. kInternal: no memory for it. places: where it lies, by member.
  using Places = const std::byte* const*;
  Status Take(Places places, collective::Tensor* result) const;

 private:
  // Rows of a rank, or what it sends to each: numbers that may differ between the ranks, and so travel with the data.
  int numbers() const { return type_ == OpType::kAllgather ? 1 : type_ == OpType::kAlltoall ? n_ : 0; }
  int64_t OwnNumber(int i) const;
  size_t BroughtBytes(const std::byte* place) const;
  size_t BytesBefore(const std::byte* place, int member) const;
  const std::byte* DataOf(Places places, int member) const;
  void Combine(Places places, size_t first, size_t bytes, std::byte* out) const;
  Status Concatenate(Places places, collective::Tensor* result) const;

  const hvd_op& op_;
  OpType type_;
  DType dtype_;
  int me_, n_;
  size_t rows_ = 1, row_bytes_ = 0;
};

}  // namespace hvd::engine
