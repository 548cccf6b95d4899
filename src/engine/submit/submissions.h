// Submissions: the front door of the engine. Any thread puts requests in; the holder of the driver role takes them out
// in order. Knows which names are in flight (a duplicate is refused here and stays local) and hands each entry out
// once, when its batch runs or fails.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "engine/record/counters.h"
#include "engine/submit/completion.h"
#include "negotiation/values/parameters.h"
#include "negotiation/values/request.h"
#include "negotiation/values/trace.h"

namespace hvd::engine {

// Of one tensor: every name travels to the root and back at least once, and stands in traces and messages.
inline constexpr size_t kMostNameBytes = 64 << 10;

// A submitted tensor, from submission until its batch runs or fails. Its address is its ticket in the negotiation.
struct Submitted {
  int process_set = 0;
  OpType type = OpType::kAllreduce;
  std::string name;
  collective::Tensor tensor;
  std::shared_ptr<Completion> completion;
  int index = 0;  // in the group
  // Of a blocking send that has returned: what is sent, its completion being nobody's; null: the caller's own tensor
  // is.
  std::unique_ptr<collective::Block> copy;
  DType dtype = DType::kFloat32;
  double since = 0;

  uint64_t ticket() const { return reinterpret_cast<uint64_t>(this); }
  // Of a ticket that was not taken yet.
  static Submitted* Of(uint64_t ticket) { return reinterpret_cast<Submitted*>(ticket); }
};

// A submitted tensor that waits, for who looks from outside.
struct Waiting {
  int process_set = 0;
  OpType type = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  std::string name;
  std::vector<int64_t> shape;
  double since = 0;
};

// What a thread asks of the engine: one of these. A ticket is that of a completion (AddWish), which gets the outcome.
namespace submission {
struct Tensors {
  std::vector<negotiation::Request> group;
  bool waits = false;  // of a send or recv: its thread does nothing else until it is done
};
struct Refusal {
  std::vector<negotiation::Request> group;  // what it would have been
  std::string reason;
};
struct Join {
  uint64_t ticket = 0;
};
struct AddSet {
  std::vector<int> ranks;
  bool by_members = false;  // these ask alone
  uint64_t ticket = 0;
};
struct RemoveSet {
  int process_set = 0;
  uint64_t ticket = 0;
};
struct Change {
  negotiation::Parameters to;
};
// Rank 0: begin or end a trace of all ranks.
struct Trace {
  negotiation::TraceOrder order;
  uint64_t ticket = 0;  // of the end: when all ranks have sent theirs
};
struct Goodbye {
  std::string last_words;  // empty: this rank ends well
};
struct Abort {
  Status why;
  bool tell_others = false;
  bool in_order = false;  // this rank has said goodbye, and is through with everything before it
  uint64_t ticket = 0;
};
}  // namespace submission
using Submission =
    std::variant<submission::Tensors, submission::Refusal, submission::Join, submission::AddSet, submission::RemoveSet,
                 submission::Change, submission::Trace, submission::Goodbye, submission::Abort>;

class Submissions {
 public:
  // counters: get the number in flight; null: nobody does.
  explicit Submissions(Counters* counters = nullptr) : counters_(counters) {}

  // Registers the tensors' names and queues their requests (one for each, in the same order), all or nothing; gives the
  // requests their tickets. kInvalidArgument: a name is in flight already.
  Status Add(std::vector<std::unique_ptr<Submitted>> tensors, std::vector<negotiation::Request> requests,
             bool waits = false);
  Status Add(Submission submission);
  // Registers something that is not a tensor (join, process set) and returns its ticket.
  Result<uint64_t> AddWish(std::shared_ptr<Completion> completion);
  // "allreduce.noname.7": unnamed operations are counted per process set and operation.
  std::string NextName(int process_set, OpType type);
  // From 1: the number of the next send or recv of a pair, which are counted apart.
  uint64_t NextNumber(int process_set, OpType type, const std::string& pair);
  // A send had returned when it failed. The next one of its pair takes why.
  void KeepFailure(int process_set, const std::string& pair, const Status& why);
  Status TakeFailure(int process_set, const std::string& pair);
  // Of sends to other ranks that have returned and wait for their recv.
  std::vector<std::shared_ptr<Completion>> CopiesForOthers();
  // From here on unnamed operations are counted from 0 again: at a place of the log where nothing of the set is in
  // flight, so that it means the same on all ranks.
  void CountAnew(int process_set);
  // A set is gone, and with it all that was counted.
  void ForgetSet(int process_set);

  // Whether this rank has ever refused an operation of this name: its next one must not overtake the refusal.
  bool EverRefused(const char* name);

  // What has been submitted and does not run yet, the oldest first.
  std::vector<Waiting> ListWaiting();

  size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }
  bool any() const { return waiting_.load(std::memory_order_seq_cst) != 0; }
  // Moves everything queued to *out, in order. False: nothing there.
  bool Take(std::vector<Submission>* out);
  std::unique_ptr<Submitted> Take(uint64_t ticket);
  std::shared_ptr<Completion> TakeWish(uint64_t ticket);
  // Refuses everything from now on with `why`, and gives out what is not finished (once per tensor).
  std::vector<std::shared_ptr<Completion>> Close(Status why);
  bool any_in_flight() const { return in_flight_.load(std::memory_order_relaxed) != 0; }
  size_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kOpTypes = HVD_JOIN + 1;
  using ByName = std::unordered_map<std::string_view, std::unique_ptr<Submitted>>;  // the keys lie in the Submitted

  void CountInFlight(ptrdiff_t more) {
    const size_t now = in_flight_.fetch_add(static_cast<size_t>(more), std::memory_order_relaxed);
    if (counters_ != nullptr) counters_->SetInFlight(now + static_cast<size_t>(more));
  }

  Counters* const counters_;
  std::mutex mutex_;  // guards all but the counters and the flag
  std::vector<Submission> queue_;
  std::unordered_map<int, ByName> entries_;  // by process set
  std::unordered_map<uint64_t, std::shared_ptr<Completion>> wishes_;
  uint64_t next_wish_ = 1;                                           // odd: never the address of a Submitted
  std::unordered_map<int, std::array<uint64_t, kOpTypes>> unnamed_;  // by process set: the next number per operation
  Status closed_;
  std::atomic<size_t> waiting_{0}, in_flight_{0};
  struct PairState {
    uint64_t sends = 0, recvs = 0;
    Status failed;  // a send that had returned
  };
  std::map<int, std::unordered_map<std::string, PairState>> pairs_;  // by process set and name
  std::unordered_set<std::string> refused_;                          // of misuse only, so it stays small
  std::atomic<bool> any_refused_{false};
};

}  // namespace hvd::engine
