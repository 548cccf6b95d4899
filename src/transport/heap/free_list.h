// FreeList: which parts of a range are free. First fit. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

namespace hvd::transport {

class FreeList {
 public:
  // The offset of a part of this many bytes, which is no longer free; nothing: there is none.
  std::optional<size_t> Take(size_t bytes) {
    const auto it = std::find_if(free_.begin(), free_.end(), [&](const auto& f) { return f.second >= bytes; });
    if (it == free_.end()) return std::nullopt;
    const auto [offset, there] = *it;
    free_.erase(it);
    if (there > bytes) free_[offset + bytes] = there - bytes;
    return offset;
  }

  void Give(size_t offset, size_t bytes) {
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + bytes) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    }
    free_[offset] = bytes;
  }

  // Offsets and bytes; nothing is free afterwards.
  std::map<size_t, size_t> TakeAll() { return std::exchange(free_, {}); }

 private:
  std::map<size_t, size_t> free_;  // offset -> bytes, coalesced
};

}  // namespace hvd::transport
