// The wire format of the negotiation: frames of records, little-endian, varints. See docs/design for the protocol.
// Coding only; what a record means is decided in uplink.cc and order_log.cc.
//
// Frame: version u8, direction u8, sender u32, epoch u64, number u32 (counts the frames of this link and direction),
// then records up to the end. A cached mark costs 1-3 bytes, plus a few bytes per run of marks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "negotiation/values/rank_set.h"
#include "negotiation/values/request.h"
#include "negotiation/values/tally.h"
#include "negotiation/values/turn.h"

namespace hvd::negotiation {

inline constexpr uint8_t kWireVersion = 5;
inline constexpr size_t kFrameHeaderBytes = 18;

// What is wrong with a record that no rank should send.
inline Status Wrong(const std::string& what) { return {Code::kInternal, what}; }

// kBeside: what small operations bring, between the leaders of hosts and from a leader down its host. Its records have
// no kind: id, turn, payloads (of the sender's host, or of all members).
enum class Direction : uint8_t { kUp = 0, kDown = 1, kBeside = 2 };

enum class UpRecord : uint8_t {
  kVersion = 1,  // version: the records behind were sent after the sender obeyed the log up to it
  kMarks,        // count u32, ids: every member below the sender has marked these cached requests
  kTally,        // a whole tally of the members below the sender: what is not (only) cached marks
  kJoined,       // rank
  kAllJoined,    // every rank below the sender has joined; the marks that this completes came before
  kGoodbye,      // rank, the exception that ends it or ""
  kAbort,        // code, text
  kStallNotice,  // a tally below is old
  kStallReport,  // answer to kStallQuery
  kPayloads,     // id, payloads: a mark, and what every member below the sender brings
  kDone,         // what comes behind was sent after these operations were done directly: count, (id, the next turn)
  kTrace,        // a piece of a rank's trace (trace.h)
  kClock,        // an answer to kClock of the log
};

enum class LogRecord : uint8_t {
  kDefine = 64,  // id, request: from here on the id means this
  kBatch,        // joined ranks, entries (id + 1, or 0 and a request)
  kFail,         // process set, name, group hashes, whether not all have submitted it, code, text: the tally of that
                 // name is over, and with it every entry of these groups, complete or not
  kSetAdded,     // name of the tally, id, ranks
  kSetRemoved,   // name of the tally, id
  kJoined,       // the last rank to join
  kLeft,         // rank, as in kGoodbye
  kStallQuery,   // number, names; not part of the order
  kAbort,        // code, text; not part of the order
  kExchanged,    // id, payloads: what every member has brought; the operation needs nothing else
  kDone,         // as above
  kParameters,   // what the ranks go by from here on (parameters.h)
  kTrace,        // the trace of all ranks begins or ends (trace.h)
  kClock,        // what time is it there; not part of the order
};

struct FrameHeader {
  Direction direction = Direction::kUp;
  uint32_t sender = 0;
  uint64_t epoch = 0;
  uint32_t number = 0;
};
void WriteHeader(const FrameHeader& header, std::byte* at);  // kFrameHeaderBytes
// Checks everything but the number. `expected`: direction, sender, epoch.
Status ReadHeader(std::span<const std::byte> frame, const FrameHeader& expected, FrameHeader* out);

// Without the ticket. The body leaves out process set and name. Reading fails the reader on anything that is not a
// request.
void WriteRequest(const Request& request, ByteWriter* w);
void WriteRequestBody(const Request& request, ByteWriter* w);
Request ReadRequest(ByteReader* r);
void ReadRequestBody(ByteReader* r, Request* request);

void WriteRanks(const RankSet& ranks, ByteWriter* w);
RankSet ReadRanks(ByteReader* r, int size);  // 0 <= rank < size

// A kDone record, written by the outbox.
struct DoneDirectly {
  uint32_t id = 0;
  Turn next;  // of the id, when that is done
};
std::vector<DoneDirectly> ReadDone(ByteReader* r);

void WriteStatus(const Status& status, ByteWriter* w);
Status ReadStatus(ByteReader* r);  // never ok: fails the reader instead

// A kTally record: the variants of what the ranks below the sender have contributed, one part for each.
struct WireTally {
  NameKey key;
  OpType type = OpType::kAllreduce;
  std::vector<Part> parts;  // without source; of a cached id, without the request
};
void WriteTally(const Tally& tally, ByteWriter* w);
WireTally ReadTally(ByteReader* r, int size);

}  // namespace hvd::negotiation
