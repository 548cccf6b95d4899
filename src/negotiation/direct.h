// Direct: small operations without the root (docs/design/0012-payloads.md). A leader that has what every rank of its
// host brings sends it to all other leaders at once; a leader with the contributions of all members is done, hands them
// down its host and need not tell the root: every leader learns from the same messages that all have contributed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "negotiation/frames/outbox.h"
#include "negotiation/stall/protocol.h"
#include "negotiation/state/marks.h"
#include "negotiation/state/set_table.h"
#include "negotiation/values/actions.h"

namespace hvd::negotiation {

class Direct {
 public:
  // Its inputs and outputs; they must outlive it.
  struct Around {
    const Place* place;
    const SetTable* sets;
    Marks* marks;
    Outbox* out;
    Results* results;
    StallProtocol* stall;
  };
  explicit Direct(const Around& around) : at_(around) {}

  // From another leader, or this rank's parent on its host. Stops before a record of a turn that this rank has not
  // reached: it waits for what is on its way from others.
  Status Receive(int from_rank, ByteReader* r, double now);
  // Operations of which everything is there are done.
  void Settle();

 private:
  Status ReceiveOne(int from_rank, ByteReader* r, bool* ahead, double now);
  Status FromLeader(int from_rank, uint32_t id, std::vector<Payload> payloads, double now);
  Status FromParent(uint32_t id, std::vector<Payload> payloads);
  void Done(uint32_t id, std::vector<Payload> payloads);

  const Around at_;
};

}  // namespace hvd::negotiation
