#include "engine/record/trace_pieces.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace hvd::engine {
namespace {

using Kind = negotiation::TracePiece::Kind;

// Whole lines of a text, as many as fit.
size_t Cut(const std::string& text, size_t from) {
  if (text.size() - from <= TracePieces::kPieceBytes) return text.size();
  const size_t end = text.rfind('\n', from + TracePieces::kPieceBytes);
  if (end != std::string::npos && end >= from) return end + 1;
  const size_t next = text.find('\n', from);  // a line that is longer
  return next == std::string::npos ? text.size() : next + 1;
}

}  // namespace

void TracePieces::Begin(int rank, uint32_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  rank_ = rank;
  number_ = number;
  queue_.clear();
  bytes_ = 0;
  dropped_.clear();
}

void TracePieces::Queue(Kind kind, uint32_t events, std::string text) {
  bytes_ += text.size();
  queue_.push_back({rank_, number_, kind, events, std::move(text)});
}

void TracePieces::Add(const TraceText& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [kind, all, most] :
       {std::tuple(Kind::kNames, &text.names, kMostNames), std::tuple(Kind::kEvents, &text.events, kMostBytes)}) {
    for (size_t from = 0; from < all->size();) {
      const size_t end = Cut(*all, from);
      std::string piece = all->substr(from, end - from);
      from = end;
      const auto lines = static_cast<uint32_t>(std::count(piece.begin(), piece.end(), '\n'));
      const uint32_t events = kind == Kind::kEvents ? lines : 0;
      if (piece.size() > negotiation::kMostTraceBytes || bytes_ + piece.size() > most) {
        if (events > 0) dropped_[rank_] += events;
      } else {
        Queue(kind, events, std::move(piece));
      }
    }
  }
}

void TracePieces::End() {
  std::lock_guard<std::mutex> lock(mutex_);
  Queue(Kind::kEnd, 0, "");
}

bool TracePieces::Take(negotiation::TracePiece* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (queue_.empty()) return false;
  *out = std::move(queue_.front());
  queue_.pop_front();
  bytes_ -= out->text.size();
  return true;
}

bool TracePieces::empty() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return queue_.empty();
}

std::map<int, uint64_t> TracePieces::TakeDropped() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(dropped_, {});
}

void TracePieces::Dropped(int rank, uint64_t events) {
  std::lock_guard<std::mutex> lock(mutex_);
  dropped_[rank] += events;
}

}  // namespace hvd::engine
