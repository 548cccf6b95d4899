// OrderLog: obeying the log. The same records, in the same order, on every rank; the root obeys what it wrote itself
// through the same code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "negotiation/frames/versions.h"
#include "negotiation/stall/protocol.h"
#include "negotiation/state/abort_state.h"
#include "negotiation/state/departures.h"
#include "negotiation/state/joins.h"
#include "negotiation/state/marks.h"
#include "negotiation/state/own_requests.h"
#include "negotiation/state/ready_queue.h"
#include "negotiation/state/set_table.h"
#include "negotiation/values/actions.h"

namespace hvd::negotiation {

class OrderLog {
 public:
  // What the log changes; all must outlive it.
  struct Around {
    const Place* place;
    SetTable* sets;
    Versions* versions;
    Outbox* out;
    Results* results;
    AbortState* abort;
    ReadyQueue* ready;
    Marks* marks;
    Joins* joins;
    Departures* departures;
    OwnRequests* own_requests;
    StallProtocol* stall;
  };
  explicit OrderLog(const Around& around) : at_(around) {}

  // Of a frame. An error says what is wrong with it. Stops before the news of an operation that is done directly, and
  // not yet here: what comes behind it waits for what is on its way from others.
  Status Obey(ByteReader* r, double now);
  // What the root has written since.
  void ObeyOwn(double now);

 private:
  Status ObeyOne(LogRecord record, ByteReader* r, double now);
  Status RootDone(ByteReader* r, bool* ahead) const;
  Status Define(ByteReader* r);
  Status Batch(ByteReader* r);
  Status Exchange(ByteReader* r);
  Status TakeCached(uint64_t id, Entry* entry);
  Status TakeEntry(ByteReader* r, Entry* entry);
  Status Fail(ByteReader* r, double now);
  Status SetWasAdded(ByteReader* r);
  Status SetWasRemoved(ByteReader* r);
  Status JoinEnded(ByteReader* r);
  Status Change(ByteReader* r);
  Status Left(ByteReader* r);
  void EndSet(int id, const Status& why);

  const Around at_;
  uint64_t seq_ = 0;                // batches
  std::vector<std::byte> obeying_;  // own records: obeying may write more
};

}  // namespace hvd::negotiation
