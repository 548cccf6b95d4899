#include "negotiation/values/op_text.h"

#include <string_view>

#include "base/text.h"
#include "negotiation/values/new_set.h"
#include "negotiation/values/pair.h"

namespace hvd::negotiation {
namespace {

constexpr size_t kMostNameShown = 200;  // bytes of a name in a message

}  // namespace

const char* OpText(OpType type) {
  if (type == kAddSetType) return "add_process_set";
  if (type == kRemoveSetType) return "remove_process_set";
  return NameOf(type);
}

std::string InSet(int process_set) {
  return process_set == 0 ? "" : " (process set " + std::to_string(process_set) + ")";
}

std::string Subject(OpType type, const std::string& name, int process_set) {
  std::string out = OpText(type);
  if (NamesNewSet(name)) return out + " of " + MembersOfNewSet(name).Text();
  if (IsControl(type)) return out;
  const std::string pair = IsPointToPoint(type) ? PairText(name) : "";
  if (!pair.empty()) return pair + InSet(process_set);
  std::string_view shown = name;
  if (shown.starts_with(out) && shown.substr(out.size()).starts_with('.')) shown.remove_prefix(out.size() + 1);
  return out + " '" + Shortened(shown, kMostNameShown) + "'" + InSet(process_set);
}

std::string UserName(OpType type, const std::string& name, int32_t group_size) {
  const std::string operation = std::string(OpText(type)) + ".";
  if (!name.starts_with(operation) || name.starts_with(operation + "noname.")) return "";
  std::string own = name.substr(operation.size());
  const std::string last = "of" + std::to_string(group_size);
  if (group_size <= 0 || !own.ends_with(last)) return own;
  const size_t end = own.size() - last.size(), digits = own.find_last_not_of("0123456789", end - 1);
  if (digits != std::string::npos && digits + 1 < end && own[digits] == '_') own.resize(digits);
  return own;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

}  // namespace hvd::negotiation
