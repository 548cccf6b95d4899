// Pieces: a virtual concatenation of pieces of memory (the tensors of a batch, in an order of the caller's). Addressed
// in bytes; knows nothing of ranks. Used by the collectives over channels, so that large tensors are sent from and
// received into the user's own memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hvd::collective::channels {

class Pieces {
 public:
  void Add(std::byte* data, size_t bytes) {
    if (bytes == 0) return;
    // Neighbours in memory become one piece: fewer messages need staging.
    if (!pieces_.empty() && pieces_.back().data + (bytes_ - pieces_.back().at) == data) {
      bytes_ += bytes;
      return;
    }
    pieces_.push_back({bytes_, data});
    bytes_ += bytes;
  }
  // Memory that is only read: the plans never store through an input.
  void Add(const std::byte* data, size_t bytes) { Add(const_cast<std::byte*>(data), bytes); }
  size_t bytes() const { return bytes_; }

  // The memory of [begin, begin + bytes) where it is in one piece, else nullptr.
  std::byte* Contiguous(size_t begin, size_t bytes) const {
    if (bytes == 0) return nullptr;
    const size_t i = Find(begin);
    return begin + bytes <= End(i) ? pieces_[i].data + (begin - pieces_[i].at) : nullptr;
  }

  // fn(data, bytes) for each piece of [begin, begin + bytes), in order.
  template <class Fn>
  void Visit(size_t begin, size_t bytes, Fn fn) const {
    if (bytes == 0) return;
    const size_t end = begin + bytes;
    for (size_t i = Find(begin); begin < end; ++i) {
      const size_t n = std::min(end, End(i)) - begin;
      fn(pieces_[i].data + (begin - pieces_[i].at), n);
      begin += n;
    }
  }

 private:
  struct Piece {
    size_t at;
    std::byte* data;
  };
  size_t End(size_t i) const { return i + 1 < pieces_.size() ? pieces_[i + 1].at : bytes_; }
  size_t Find(size_t at) const {
    const auto after =
        std::upper_bound(pieces_.begin(), pieces_.end(), at, [](size_t a, const Piece& p) { return a < p.at; });
    return static_cast<size_t>(after - pieces_.begin()) - 1;
  }

  std::vector<Piece> pieces_;
  size_t bytes_ = 0;
};

}  // namespace hvd::collective::channels
