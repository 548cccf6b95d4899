#include "negotiation/signature.h"

#include <algorithm>
#include <bit>

namespace hvd {

const char* OpText(OpType type) {
  if (type == kAddSetType) return "add_process_set";
  if (type == kRemoveSetType) return "remove_process_set";
  return NameOf(type);
}

bool SameShape(const Request& a, const Request& b) {
  if (a.shape.size() != b.shape.size()) return false;
  const ptrdiff_t from = FirstExtentIsFree(a.type) && !a.shape.empty() ? 1 : 0;
  return std::equal(a.shape.begin() + from, a.shape.end(), b.shape.begin() + from);
}

bool SameFactors(const Request& a, const Request& b) {
  auto same = [](double x, double y) { return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y); };
  return same(a.prescale, b.prescale) && same(a.postscale, b.postscale);
}

bool SameSignature(const Request& a, const Request& b) {
  return a.type == b.type && a.dtype == b.dtype && (!HasReduceOp(a.type) || a.op == b.op) &&
         (!HasRoot(a.type) || a.root == b.root) && SameFactors(a, b) && SameGroup(a, b) && SameShape(a, b);
}

std::string Subject(OpType type, const std::string& name, int process_set) {
  std::string out = OpText(type);
  if (IsControl(type)) return out;
  out += " '" + name + "'";
  if (process_set != 0) out += " (process set " + std::to_string(process_set) + ")";
  return out;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

}  // namespace hvd
