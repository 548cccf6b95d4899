// What a trace of all ranks sends through the negotiation (docs/design/0040-one-trace-of-all-ranks.md): rank 0's order
// to begin or end it, pieces of its text on their way to rank 0, and what compares the clocks of hosts. Nothing of it
// is part of the order of operations. Pure: times are handed in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace hvd::negotiation {

// From rank 0 to all.
struct TraceOrder {
  uint32_t number = 0;  // of the trace; each has its own
  bool on = false;
  bool mark_cycles = false;
  int64_t base_us = 0;  // where the times of the trace begin, on rank 0's clock
};

// Of one rank's part of a trace, to rank 0.
struct TracePiece {
  enum class Kind : uint8_t { kEvents = 0, kNames = 1, kEnd = 2 };  // kEnd: the last one of this rank
  int rank = 0;
  uint32_t number = 0;
  Kind kind = Kind::kEvents;
  uint32_t events = 0;  // how many the text holds
  std::string text;     // at most kMostTraceBytes
};
inline constexpr size_t kMostTraceBytes = size_t{64} << 10;

// A host's clock minus rank 0's. rank: the lowest rank of the host.
struct HostClock {
  int rank = 0;
  double offset_s = 0, error_s = 0;
};

// From rank 0 to all, and what the lowest rank of each other host answers. Each carries its sender's clock.
struct ClockQuestion {
  double asked_s = 0;
  std::vector<HostClock> hosts;  // what is known so far
};
struct ClockAnswer {
  int rank = 0;
  double sent_s = 0;
  double down_s = 0;  // the answering rank's clock when the question came, minus asked_s
};

void Write(const TraceOrder& order, ByteWriter* w);
void Write(const TracePiece& piece, ByteWriter* w);
void Write(const ClockQuestion& question, ByteWriter* w);
void Write(const ClockAnswer& answer, ByteWriter* w);
// Fail the reader on a rank that is not below `size`, a text that is too long, a time that is not finite.
TraceOrder ReadTraceOrder(ByteReader* r);
TracePiece ReadTracePiece(ByteReader* r, int size);
ClockQuestion ReadClockQuestion(ByteReader* r, int size);
ClockAnswer ReadClockAnswer(ByteReader* r, int size);

}  // namespace hvd::negotiation
