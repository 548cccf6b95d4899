// Negotiator: a node, made of parts. Each owns its data, and knows only parts that stand before it here. What they
// exchange is in values/ and frames/, what they know in state/:
//
//   place, sets          where this rank is in the tree; the process sets
//   versions, out        which contributions are void; the frames that wait to leave
//   results, abort       what the engine is to do; whether the job is over
//   ready, marks         what is agreed (root); what is contributed and not answered
//   joins, departures    membership: ranks that joined, left, or were lost
//   own_requests         what this rank itself asks for
//   stall                which ranks old operations wait for
//   log                  obeying the order log
//   coordinator          writing it (root)
//   uplink               what children send
//   direct               what small operations bring, beside the tree
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "negotiation/coordinator.h"
#include "negotiation/direct.h"
#include "negotiation/frames/inbox.h"
#include "negotiation/frames/outbox.h"
#include "negotiation/frames/versions.h"
#include "negotiation/node.h"
#include "negotiation/order_log.h"
#include "negotiation/stall/protocol.h"
#include "negotiation/state/abort_state.h"
#include "negotiation/state/departures.h"
#include "negotiation/state/joins.h"
#include "negotiation/state/marks.h"
#include "negotiation/state/own_requests.h"
#include "negotiation/state/ready_queue.h"
#include "negotiation/state/set_table.h"
#include "negotiation/uplink.h"

namespace hvd::negotiation {

struct Node::Negotiator {
  explicit Negotiator(NodeConfig config);
  Negotiator(const Negotiator&) = delete;  // the parts know one another by address

  Status Receive(int from_rank, std::span<const std::byte> frame, double now);
  // What goes beside the tree, and before all else: its receiver must not first get what was sent after it.
  void TakeBeside(const std::function<void(int to_rank, std::span<const std::byte> frame)>& send);
  // At the end of every public call that may have changed something.
  void Finish(double now);

  const uint64_t epoch;
  const Place place;
  SetTable sets;
  Versions versions;
  Outbox out;
  Results results;
  AbortState abort;
  ReadyQueue ready;
  Marks marks;
  Joins joins;
  Departures departures;
  OwnRequests own_requests;
  StallProtocol stall;
  OrderLog log;
  Coordinator coordinator;
  Uplink uplink;
  Direct direct;
  Inbox inbox;

 private:
  Status Keep(Inbox::Stream* stream, std::span<const std::byte> records);
  Status Read(const Inbox::Stream& stream, ByteReader* r, double now);
  Status ReadAndKeepRest(Inbox::Stream* stream, std::span<const std::byte> records, double now);
  bool ReadWaiting(double now);
};

}  // namespace hvd::negotiation
