// Executor: runs the batches of the order log on this rank, one at a time and in log order, step by step. Builds a
// batch from the agreed requests and this rank's own tensors (or stand-ins, when it has joined). Used by the holder of
// the driver role only.
//
// A batch that fails here is the last: the neighbours are told at once that this rank has given up, and nothing that
// comes behind it runs. What this rank did for a later batch (its progress word, its bytes in a channel) would be taken
// for its part in the failed one by members that are still in it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/process_sets.h"
#include "engine/submissions.h"
#include "engine/timeline.h"
#include "engine/tuning.h"
#include "negotiation/actions.h"

namespace hvd::engine {

// One batch on its way.
struct BatchRun {
  collective::Batch batch;
  std::shared_ptr<ProcessSets::Set> set;
  std::vector<std::unique_ptr<Submitted>> own;                // per tensor; null: this rank has joined and stands in
  std::vector<std::unique_ptr<collective::Block>> stand_ins;  // memory behind the tensors of a joined rank
  std::vector<std::shared_ptr<const negotiation::Request>> agreed;
  negotiation::Parameters parameters;  // in force at its place in the log
  Status unable;                       // why this rank cannot take part
  std::unique_ptr<Runner> runner;      // set once started
};

class Executor {
 public:
  // What the executor works with.
  struct Tools {
    backend::Registry* backends;
    Timeline* timeline;
    Transports* transports;
    const Tuning* tuning;
  };
  // Whom it tells.
  struct Listener {
    // A batch has run, or all members have refused it alike.
    std::function<void(BatchRun& run, const Status& status)> finished;
    // A batch failed on this rank, which has given up. The tensors wait for Cancel, which may be called in here.
    std::function<void(const Status& why)> gave_up;
  };
  Executor(const Tools& tools, Listener listener) : tools_(tools), listener_(std::move(listener)) {}

  // `submissions` yields this rank's tensors by ticket.
  void Add(const negotiation::ExecuteBatch& agreed, std::shared_ptr<ProcessSets::Set> set, Submissions* submissions);
  // Runs what can run now. Returns true if anything moved.
  bool Advance();
  // Gives up, for good; returns what was not finished.
  std::deque<std::unique_ptr<BatchRun>> Cancel();

  // Batches that are not finished, also when this rank has given up.
  size_t size() const { return runs_.size(); }
  bool running() const { return !runs_.empty() && !gave_up_; }
  bool gave_up() const { return gave_up_; }
  uint64_t running_seq() const { return runs_.empty() ? 0 : runs_.front()->batch.seq; }
  // The rank that the running batch waits for over a channel, -1: none known.
  int waiting_for() const { return runs_.empty() ? -1 : runs_.front()->batch.waiting_for; }
  // When the running batch must be looked at again although nothing wakes this rank; infinity: it need not be.
  double LookAgainInS() const;
  // "allreduce 'x' and 3 more", for reports.
  std::string Describe() const;

 private:
  enum class State { kRunning, kDone, kRefused, kFailed };
  State Run(BatchRun& run, bool* moved, Status* status);
  Status Start(BatchRun& run);
  void GiveUp();
  Status Explain(const BatchRun& run, const Status& why) const;
  void TraceStart(const BatchRun& run, const std::string& activity);
  void TraceEnd(const BatchRun& run);

  const Tools tools_;
  const Listener listener_;
  std::deque<std::unique_ptr<BatchRun>> runs_;
  uint64_t finished_seq_ = 0;  // of the last batch that ran to its end here
  bool gave_up_ = false;
};

// "ALLREDUCE", "ADASUM", ...: what a trace calls an operation.
const char* TraceName(OpType type, ReduceOp op);

}  // namespace hvd::engine
