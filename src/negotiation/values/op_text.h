// What operations and their names are called in messages, and the operations that only the negotiation knows. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"

namespace hvd::negotiation {

// Process sets come and go by the same agreement as tensors. shape = the ranks / root = the id.
inline constexpr OpType kAddSetType = static_cast<OpType>(100);
inline constexpr OpType kRemoveSetType = static_cast<OpType>(101);

inline constexpr const char* kSetChangePrefix = "\x01set.";  // their names: no tensor is called so

inline constexpr bool IsControl(OpType t) { return t == kAddSetType || t == kRemoveSetType; }
// What is negotiated: a send and its recv as one request, a send.
inline constexpr bool IsValidType(int32_t v) {
  return (v >= 0 && v < static_cast<int32_t>(OpType::kJoin)) || v == static_cast<int32_t>(OpType::kSend) ||
         v == static_cast<int32_t>(kAddSetType) || v == static_cast<int32_t>(kRemoveSetType);
}

const char* OpText(OpType type);
// "allreduce 'layer1.weight'", "send from rank 0 to rank 1" (pair.h), with " (process set 2)" behind when it is not 0.
// The packages put the operation before the name that a user gives ("allreduce.layer1.weight"): it is not repeated.
std::string Subject(OpType type, const std::string& name, int process_set);
// What the user calls it. The packages call a tensor OPERATION.NAME, and the members of a group OPERATION.NAME_1of3,
// ... Empty: counted ("noname"), or not named like that.
std::string UserName(OpType type, const std::string& name, int32_t group_size);
std::string InSet(int process_set);                        // " (process set 2)", or nothing for 0
std::string ShapeText(const std::vector<int64_t>& shape);  // "[512, 64]"

}  // namespace hvd::negotiation
