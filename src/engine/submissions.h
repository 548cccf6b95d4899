// Submissions: the front door of the engine. Any thread puts requests in; the holder of the driver role takes them out
// in order. Knows which names are in flight (a duplicate is refused here and stays local) and hands each entry out
// once, when its batch runs or fails.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/completion.h"
#include "negotiation/request.h"

namespace hvd {

// A submitted tensor, from submission until its batch runs or fails. Its address is its ticket in the negotiation.
struct Submitted {
  int process_set = 0;
  OpType type = OpType::kAllreduce;
  std::string name;
  Tensor tensor;
  std::shared_ptr<Completion> completion;
  int index = 0;  // in the group

  uint64_t ticket() const { return reinterpret_cast<uint64_t>(this); }
};

// What a thread asks of the engine.
struct Submission {
  enum class Kind { kRequests, kRefuse, kJoin, kAddSet, kRemoveSet, kGoodbye };
  Kind kind = Kind::kRequests;
  std::vector<Request> requests;  // kRequests: the group; kRefuse: what it would have been
  std::string reason;             // kRefuse
  std::vector<int> ranks;         // kAddSet
  int process_set = 0;            // kRemoveSet
  uint64_t ticket = 0;            // kJoin, kAddSet, kRemoveSet
};

class Submissions {
 public:
  // Registers the tensors' names and queues their requests (equally many, in the same order), all or nothing; gives the
  // requests their tickets. kInvalidArgument: a name is in flight already.
  Status Add(std::vector<std::unique_ptr<Submitted>> tensors, std::vector<Request> requests);
  Status Add(Submission submission);
  // Registers something that is not a tensor (join, process set) and returns its ticket.
  Result<uint64_t> AddWish(std::shared_ptr<Completion> completion);
  // "allreduce.noname.7": unnamed operations are counted per process set and operation.
  std::string NextName(int process_set, OpType type);

  // Whether this rank has ever refused an operation of this name: its next one must not overtake the refusal.
  bool EverRefused(const char* name);

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
  using ByName = std::unordered_map<std::string, std::unique_ptr<Submitted>>;

  std::mutex mutex_;  // guards all but the counters and the flag
  std::vector<Submission> queue_;
  std::unordered_map<int, ByName> entries_;  // by process set
  std::unordered_map<uint64_t, std::shared_ptr<Completion>> wishes_;
  uint64_t next_wish_ = 1;                         // odd: never the address of a Submitted
  std::unordered_map<int64_t, uint64_t> unnamed_;  // by (process set, operation)
  Status closed_;
  std::atomic<size_t> waiting_{0}, in_flight_{0};
  std::unordered_set<std::string> refused_;  // of misuse only, so it stays small
  std::atomic<bool> any_refused_{false};
};

}  // namespace hvd
