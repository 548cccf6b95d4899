// Request: what one rank wants, and NameKey, what identifies it. The engine builds requests from hvd_ops, the
// negotiation compares them with the other members' and hands the agreed ones back with the batch. Plain values; the
// tensor itself stays in the engine and is found again by `ticket`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"

namespace hvd::negotiation {

// (process set, name): the identity of a tensor. Maps are looked up by a view, without a copy of the name.
struct NameView {
  int32_t set = 0;
  std::string_view name;
};
struct NameKey {
  int32_t set = 0;
  std::string name;
  operator NameView() const { return {set, name}; }  // NOLINT: implicit on purpose
};
struct NameHash {
  using is_transparent = void;
  size_t operator()(NameView k) const {
    return std::hash<std::string_view>()(k.name) ^
           (static_cast<size_t>(static_cast<uint32_t>(k.set)) * 0x9e3779b97f4a7c15ull);
  }
};
struct NameEqual {
  using is_transparent = void;
  bool operator()(NameView a, NameView b) const { return a.set == b.set && a.name == b.name; }
};
template <class T>
using NameMap = std::unordered_map<NameKey, T, NameHash, NameEqual>;

struct Request {
  OpType type = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // allreduce and reducescatter; keep it kSum for the others
  int32_t root = 0;              // global rank; broadcast; keep it 0 for the others
  int32_t process_set = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::string name;
  // Of this rank; what is agreed for allgather and alltoall holds one member's first extent.
  std::vector<int64_t> shape;
  // Identity of an atomic group: hash of its ordered member names (never 0), number of members, place in it. 0, 0, 0 =
  // no group.
  uint64_t group_hash = 0;
  int32_t group_size = 0;
  int32_t group_index = 0;
  bool on_device = false;  // the tensor lies on a device of this rank, not in the host's memory
  bool transient = false;  // unnamed (counted) operation: never cached
  // This rank's contribution, sent with its mark; null: none. Not part of what is compared.
  std::shared_ptr<const std::vector<std::byte>> payload;
  // The engine's own mark for this rank's entry, not negotiated: comes back in the actions. Must not be 0.
  uint64_t ticket = 0;

  NameView key() const { return {process_set, name}; }
  // Bytes of this rank's tensor; INT64_MAX when the number does not fit.
  int64_t bytes() const {
    int64_t n = static_cast<int64_t>(SizeOf(dtype));
    for (int64_t extent : shape) {
      if (extent <= 0) return 0;
      if (__builtin_mul_overflow(n, extent, &n)) n = INT64_MAX;
    }
    return n;
  }
};

// FNV-1a over the names, in order, with separators; never 0.
uint64_t GroupHash(const std::vector<std::string>& ordered_names);

}  // namespace hvd::negotiation
