// Executor: runs the batches of the order log on this rank, one at a time and in log order, step by step. Builds a
// batch from the agreed requests and this rank's own tensors (or stand-ins, when it has joined). Used by the holder of
// the driver role only.
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
#include "negotiation/node.h"

namespace hvd {

// One batch on its way.
struct Job {
  Batch batch;
  std::shared_ptr<ProcessSets::Set> set;
  std::vector<std::unique_ptr<Submitted>> own;    // per tensor; null: this rank has joined and stands in
  std::vector<std::unique_ptr<Block>> stand_ins;  // memory behind the tensors of a joined rank
  std::vector<std::shared_ptr<const Request>> agreed;
  std::unique_ptr<Runner> runner;  // set once started
};

class Executor {
 public:
  using Finished = std::function<void(Job& job, const Status& status, bool fatal)>;
  Executor(BackendRegistry* backends, Timeline* timeline, Finished finished)
      : backends_(backends), timeline_(timeline), finished_(std::move(finished)) {}

  // `action` is a kExecute; `take` yields this rank's tensor by ticket.
  void Add(const Action& action, std::shared_ptr<ProcessSets::Set> set, Submissions* submissions);
  // Runs what can run now. Returns true if anything moved.
  bool Advance();
  // Drops everything; returns what was not finished.
  std::deque<std::unique_ptr<Job>> Cancel();

  size_t size() const { return jobs_.size(); }
  // Sequence number of the last batch that ran to its end here.
  uint64_t finished_seq() const { return finished_seq_; }
  // The rank that the running batch waits for over a channel, -1: none known.
  int waiting_for() const { return jobs_.empty() ? -1 : jobs_.front()->batch.waiting_for; }
  // "allreduce 'x' and 3 more", for reports.
  std::string Describe() const;

 private:
  Status Start(Job& job);
  void TraceStart(const Job& job, const std::string& activity);
  void TraceEnd(const Job& job);

  BackendRegistry* backends_;
  Timeline* timeline_;
  Finished finished_;
  std::deque<std::unique_ptr<Job>> jobs_;
  uint64_t finished_seq_ = 0;
};

// "ALLREDUCE", "ADASUM", ...: what a trace calls an operation.
const char* TraceName(OpType type, ReduceOp op);

// The factor that turns a sum over n members into their average, for this type: for integers the smallest double that
// is not below 1/n, so that k*n becomes exactly k after truncation.
double AverageFactor(DType dtype, int n);

}  // namespace hvd
