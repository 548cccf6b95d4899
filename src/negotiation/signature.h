// Signature: the part of a request on which all members must agree, how to compare it and how to say it in an error.
// Pure. allgather and alltoall leave out the first extent: sizes are exchanged in the data phase.
#pragma once

#include <string>

#include "negotiation/request.h"

namespace hvd {

// Requests that only the negotiation knows: process sets come and go by the same agreement as tensors. shape = the
// ranks / root = the id.
inline constexpr OpType kAddSetType = static_cast<OpType>(100);
inline constexpr OpType kRemoveSetType = static_cast<OpType>(101);

inline constexpr const char* kSetChangePrefix = "\x01set.";  // their names: no tensor is called so

inline constexpr bool IsControl(OpType t) { return t == kAddSetType || t == kRemoveSetType; }
inline constexpr bool IsValidType(int32_t v) {
  return (v >= 0 && v < static_cast<int32_t>(OpType::kJoin)) || v == static_cast<int32_t>(kAddSetType) ||
         v == static_cast<int32_t>(kRemoveSetType);
}
const char* OpText(OpType type);

inline constexpr bool FirstExtentIsFree(OpType t) { return t == OpType::kAllgather || t == OpType::kAlltoall; }
inline constexpr bool HasReduceOp(OpType t) { return t == OpType::kAllreduce || t == OpType::kReducescatter; }
inline constexpr bool HasRoot(OpType t) { return t == OpType::kBroadcast || t == kRemoveSetType; }
bool SameShape(const Request& a, const Request& b);  // but for a first extent that is free
bool SameFactors(const Request& a, const Request& b);
inline bool SameGroup(const Request& a, const Request& b) {
  return a.group_hash == b.group_hash && a.group_size == b.group_size && a.group_index == b.group_index;
}
bool SameSignature(const Request& a, const Request& b);

// "allreduce 'layer1.weight'", with " (process set 2)" behind when it is not 0.
std::string Subject(OpType type, const std::string& name, int process_set);
std::string ShapeText(const std::vector<int64_t>& shape);  // "[512, 64]"

}  // namespace hvd
