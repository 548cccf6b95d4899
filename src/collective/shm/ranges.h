// The tensors of a batch as one: what is to be done between two places of it, in the users' own memory.
#pragma once

#include <cstddef>
#include <vector>

#include "collective/kernels/kernels.h"
#include "collective/stores/trial.h"

namespace hvd::collective::shm {

// The tensors of a batch laid end to end: offsets are bytes of the whole, pieces are the users' own memory.
class Ranges {
 public:
  void Add(const std::byte* input, std::byte* output, size_t bytes) {
    if (bytes == 0) return;
    pieces_.push_back({input, output, total_, bytes});
    total_ += bytes;
  }
  void Append(const Ranges& more) {
    for (const Piece& p : more.pieces_) Add(p.input, p.output, p.bytes);
  }
  void AppendPart(const Ranges& whole, size_t from, size_t to) {
    whole.ForEach(from, to, [this](const std::byte* in, std::byte* out, size_t bytes, size_t) { Add(in, out, bytes); });
  }
  size_t total() const { return total_; }
  // Bytes whose output is not their input: what the choice of stores for results is about.
  size_t apart() const {
    size_t bytes = 0;
    for (const Piece& p : pieces_) bytes += p.output == p.input ? 0 : p.bytes;
    return bytes;
  }
  // Calls fn(input, output, bytes, at): the parts of [from, to), `at` bytes into the whole.
  template <class F>
  void ForEach(size_t from, size_t to, F fn) const {
    if (from >= to) return;
    for (size_t i = Find(from); i < pieces_.size() && from < to; ++i) {
      const Piece& p = pieces_[i];
      const size_t skip = from - p.at, left = p.bytes - skip, bytes = left < to - from ? left : to - from;
      fn(p.input == nullptr ? nullptr : p.input + skip, p.output == nullptr ? nullptr : p.output + skip, bytes, from);
      from += bytes;
    }
  }
  // Stores the inputs of [from, to) one after the other.
  void Gather(size_t from, size_t to, std::byte* dst, StoreMode mode) const {
    ForEach(from, to, [&](const std::byte* in, std::byte*, size_t bytes, size_t at) {
      kernels::Copy(dst + (at - from), in, bytes, mode);
    });
  }
  // The outputs of [from, to), where there are any, from bytes one after the other.
  void Scatter(size_t from, size_t to, const std::byte* src, StoreMode results = StoreMode::kOrdinary) const {
    ForEach(from, to, [&](const std::byte* in, std::byte* out, size_t bytes, size_t at) {
      if (out != nullptr) kernels::Copy(out, src + (at - from), bytes, ResultStores(in, out, results));
    });
  }
  // The outputs of [from, to) from the inputs.
  void CopyOver(size_t from, size_t to, StoreMode results) const {
    ForEach(from, to, [results](const std::byte* in, std::byte* out, size_t bytes, size_t) {
      kernels::Copy(out, in, bytes, results);
    });
  }

 private:
  struct Piece {
    const std::byte* input;
    std::byte* output;
    size_t at, bytes;
  };
  size_t Find(size_t at) const {
    size_t low = 0, high = pieces_.size();
    while (high - low > 1) {
      const size_t middle = (low + high) / 2;
      (pieces_[middle].at <= at ? low : high) = middle;
    }
    return low;
  }
  std::vector<Piece> pieces_;
  size_t total_ = 0;
};

}  // namespace hvd::collective::shm
