// Actions: what a negotiation node tells its own engine to do, in order. Obey them in this order: it is the log's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "negotiation/values/op_text.h"
#include "negotiation/values/parameters.h"
#include "negotiation/values/payload.h"
#include "negotiation/values/request.h"
#include "negotiation/values/trace.h"

namespace hvd::negotiation {

// One tensor of a batch.
struct Entry {
  std::shared_ptr<const Request> request;  // agreed by all members
  uint64_t ticket = 0;                     // this rank's own; 0: this rank has joined and takes part without an entry
};

struct ExecuteBatch {
  uint64_t seq = 0;
  int process_set = 0;
  std::vector<Entry> entries;
  std::vector<int> joined;  // ranks that take part without entries, ascending
};
// An own entry is done when its result has been made of what all members have brought.
struct Exchanged {
  Entry entry;
  std::vector<Payload> payloads;  // of all members, by rank
};
// One own entry (or join) failed.
struct EntryFailed {
  uint64_t ticket = 0;
  int process_set = 0;
  std::string name;
  Status why;
};
struct SetAdded {
  uint64_t ticket = 0;
  int process_set = 0;
  std::vector<int> ranks;
};
// Own entries of the set were failed before.
struct SetRemoved {
  uint64_t ticket = 0;
  int process_set = 0;
};
// The own AddSet or RemoveSet failed.
struct SetChangeFailed {
  uint64_t ticket = 0;
  Status why;
};
struct AllJoined {
  uint64_t ticket = 0;
  int last_rank = -1;
};
// Every batch behind this one goes by these.
struct ParametersChanged {
  Parameters parameters;
};
// A rank said goodbye. The own rank: every batch that needs it came before; the connections may be closed once all
// frames are out.
struct RankLeft {
  int rank = -1;
  std::string exception;  // that ended it; empty: it ended well
};
// Everything pending and future fails.
struct Aborted {
  Status why;
};
// Something waits for ranks that have not submitted it: the moment to look what each rank does.
struct Stalled {};
struct LogLine {
  LogLevel level = LogLevel::kWarning;
  std::string text;
};

using Action = std::variant<ExecuteBatch, Exchanged, EntryFailed, SetAdded, SetRemoved, SetChangeFailed, AllJoined,
                            ParametersChanged, RankLeft, Aborted, Stalled, LogLine, TraceOrder, TracePiece,
                            ClockQuestion, ClockAnswer>;

// The actions that the engine has not taken yet.
class Results {
 public:
  std::vector<Action>& list() { return list_; }
  template <class Kind>
  void Add(Kind action) {
    list_.emplace_back(std::in_place_type<Kind>, std::move(action));
  }
  void Warn(std::string text, LogLevel level = LogLevel::kWarning) { Add(LogLine{level, std::move(text)}); }
  // An own entry or set change failed. `why` is the whole message.
  void Fail(const Request& own, Status why) {
    if (IsControl(own.type)) return Add(SetChangeFailed{own.ticket, std::move(why)});
    Add(EntryFailed{own.ticket, own.process_set, own.name, std::move(why)});
  }
  // The same, with what failed put before the reason.
  void FailBecause(const Request& own, const Status& reason) {
    Fail(own, reason.Because(Subject(own.type, own.name, own.process_set)));
  }

 private:
  std::vector<Action> list_;
};

}  // namespace hvd::negotiation
