// NameKey: (process set, name), the identity of a tensor; with hashing that looks up by a view, without a copy of the
// name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hvd {

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

}  // namespace hvd
