// TracePieces: what a rank has to say to a trace that rank 0 writes, cut into pieces that wait to be sent. Bounded:
// what does not fit is left out and counted. Any thread.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>

#include "engine/record/trace_event.h"
#include "negotiation/values/trace.h"

namespace hvd::engine {

class TracePieces {
 public:
  static constexpr size_t kPieceBytes = size_t{24} << 10;  // about
  static constexpr size_t kMostBytes = size_t{8} << 20;    // that wait
  static constexpr size_t kMostNames = size_t{32} << 20;   // of them names, which are worth more

  // Forgets what is left of an earlier trace.
  void Begin(int rank, uint32_t number);
  void Add(const TraceText& text);
  void End();
  // The oldest. False: there is none.
  bool Take(negotiation::TracePiece* out);
  bool empty() const;
  // Events that have been left out since the last call, by rank.
  std::map<int, uint64_t> TakeDropped();
  // Of another rank, on the way through this one.
  void Dropped(int rank, uint64_t events);

 private:
  void Queue(negotiation::TracePiece::Kind kind, uint32_t events, std::string text);

  mutable std::mutex mutex_;
  int rank_ = 0;
  uint32_t number_ = 0;
  std::deque<negotiation::TracePiece> queue_;
  size_t bytes_ = 0;
  std::map<int, uint64_t> dropped_;
};

}  // namespace hvd::engine
