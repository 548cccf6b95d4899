// The records of the stall protocol on the wire. Coding only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "negotiation/stall/stalled.h"

namespace hvd::negotiation {

// Notifies the root of an old tally. It carries ages, because clocks differ.
void WriteStallNotice(const StalledTally& tally, double now, ByteWriter* w);
StalledTally ReadStallNotice(ByteReader* r, double now);

// The root's stall query. An empty name list is a liveness ping.
struct StallQuestion {
  uint64_t number = 0;
  std::vector<NameKey> names;
};
void WriteStallQuestion(const StallQuestion& question, ByteWriter* w);
StallQuestion ReadStallQuestion(ByteReader* r);

struct StallAnswer {
  uint64_t number = 0;
  int rank = 0;
  std::vector<StallState> states;  // per name
};
void WriteStallAnswer(const StallAnswer& answer, ByteWriter* w);
StallAnswer ReadStallAnswer(ByteReader* r, int job_size);

}  // namespace hvd::negotiation
