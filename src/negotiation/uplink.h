// Uplink: what children send: contributions, joins, goodbyes, records of the stall protocol. An invalid record is an
// error that says why.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "negotiation/coordinator.h"
#include "negotiation/frames/versions.h"
#include "negotiation/frames/wire.h"
#include "negotiation/stall/protocol.h"
#include "negotiation/state/abort_state.h"
#include "negotiation/state/departures.h"
#include "negotiation/state/joins.h"
#include "negotiation/state/marks.h"
#include "negotiation/state/set_table.h"

namespace hvd::negotiation {

class Uplink {
 public:
  // The parts that the records change; all must outlive it.
  struct Around {
    const Place* place;
    const SetTable* sets;
    Versions* versions;
    AbortState* abort;
    Marks* marks;
    Joins* joins;
    Departures* departures;
    StallProtocol* stall;
    Coordinator* coordinator;
    Results* results;
  };
  explicit Uplink(const Around& around) : at_(around) {}

  // Stops before the news of an operation that is done directly, and not yet here: what comes behind it waits for what
  // is on its way from others.
  Status Receive(int source, ByteReader* r, double now);

 private:
  Status ReceiveOne(UpRecord record, int source, ByteReader* r, double now);
  Status Marked(int source, ByteReader* r, double now);
  Status Brought(int source, ByteReader* r, double now);
  Status MarkOne(uint32_t id, int source, std::vector<Payload> payloads, double now);
  Status OthersDone(int source, ByteReader* r, bool* ahead);
  Status Contributed(int source, ByteReader* r, double now);
  bool IsVoid(const WireTally& tally, int source) const;
  Status Check(const WireTally& tally, int source) const;
  Status StallReport(int source, ByteReader* r, double now);
  Status Trace(int source, ByteReader* r);
  Status Clock(int source, ByteReader* r);

  const Around at_;
};

}  // namespace hvd::negotiation
