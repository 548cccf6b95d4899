// Engine: one rank's runtime, put together from its parts; entered through api/. Each part owns its data and knows only
// parts that stand above it. Nor does a folder know those below it:
//
//   wake/     Waker, Spread                what threads sleep on and what wakes them; which cores they run on
//   links/    Connections, Watch           this rank's ways to the others, who of them lives; ProcessSets
//   record/   Timeline, Counters, Steps    what has happened, for those who ask
//   submit/   Role, Submissions, Arrivals  who may work, what threads have asked for, how they learn that it is done;
//             Pairs, SelfSends             what goes between two ranks, what this rank sends itself
//   express/  Express, Exchange            small operations without the negotiation
//   run/      Executor, Verdict            running what all ranks agree on (negotiation/), and failing for good
//   drive/    Tracing                      the part of a trace of all ranks that goes over the control connections
//             Feed, Orders, Progress       one round of work: submissions in, the log obeyed, everything moved
//             Driver, Waiter, Background   how a thread takes the role, waits for a result, looks after the rest
//   entry/    Intake, ExpressPath          the ways in
//
// One thread at a time holds the *driver role* and moves everything forward. Nobody polls, so an idle job costs
// nothing. Callbacks run after the role is released.
//
// Locks: Submissions, HandleTable, Completion, ProcessSets, Watch and Role have their own, never held while taking
// another.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/drive/background.h"
#include "engine/drive/waiter.h"
#include "engine/entry/express_path.h"
#include "engine/entry/handle_table.h"
#include "engine/entry/intake.h"

namespace hvd::backend {
class GpuBackends;
}
namespace hvd::backend::mpi {
class MpiBackend;
}

namespace hvd::engine {

class Engine {
 public:
  // Takes over every descriptor in the config, also when it fails.
  static Result<std::unique_ptr<Engine>> Create(const hvd_config& config,
                                                const Connections::MapArena& map = Connections::MapArenaFromMemfd);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // See hvd_use_mpi.
  Status UseMpi(const hvd_mpi& mpi);
  // See hvd_use_gpu.
  Status UseGpu(const hvd_gpu& gpu);
  // Why this rank is about to end, for its goodbye. By the thread that calls Shutdown.
  void SetLastWords(const std::string& why);
  // Says goodbye and waits at most timeout_s for what is under way; then aborts the rest. Ends within timeout_s, what
  // Abort takes, and a moment for a culprit to end first, but for a callback that does not return. Once is enough.
  void Shutdown(double timeout_s);
  // Everything pending and future fails with `why`; the other ranks are notified. The driver obeys within 0.1 s;
  // cutting shared tensors off takes about half a second per GB more.
  void Abort(const Status& why, bool tell_others = true);

  // flags: HVD_SUBMIT_...
  Status Submit(const hvd_op* ops, int n, uint32_t flags, std::shared_ptr<Completion>* out) {
    return intake_.Submit(ops, n, flags, out);
  }
  Status Refuse(OpType type, int process_set, const std::string& name, const std::string& reason) {
    return intake_.Refuse(type, process_set, name, reason);
  }
  Status AddSet(std::vector<int> ranks, std::shared_ptr<Completion>* out, bool by_members = false) {
    return intake_.AddSet(std::move(ranks), by_members, out);
  }
  Status RemoveSet(int id, std::shared_ptr<Completion>* out) { return intake_.RemoveSet(id, out); }
  // Rank 0, for all: see hvd_set_parameters.
  Status ChangeParameters(const negotiation::Parameters& to) { return intake_.ChangeParameters(to); }
  negotiation::Parameters parameters() const { return tuning_.now(); }
  Status AwaitSteps(int64_t n, double timeout_s, Steps::Count* out) { return counters_.steps.Await(n, timeout_s, out); }
  // Submits and waits. *out: null if it is done, was successful, and its outputs are the caller's; otherwise it may be
  // unfinished after timeout_s, or a signal.
  Status Run(const hvd_op* ops, int n, double timeout_s, std::shared_ptr<Completion>* out);
  // True: done. False: the time is over, or a signal arrived.
  bool Wait(Completion& completion, double timeout_s) { return waiter_.Wait(completion, timeout_s); }
  // The data connection to a rank that had none, or the reason why there will be none.
  Status Connected(int rank, Fd connection, const Status& why_not);
  // One look at what can move on, without waiting.
  void Poll() { driver_.Poll(); }

  const hvd_topology& topology() const { return topology_; }
  // The backends that may execute batches. To be changed before this rank's first submission.
  backend::Registry& backends() { return backends_; }
  HandleTable& handles() { return handles_; }
  ProcessSets& sets() { return sets_; }
  std::shared_ptr<transport::ResultHeap> results() const { return connections_->results(); }
  // Rank 0's: see hvd_timeline_start.
  Status StartTimeline(const std::string& path, bool mark_cycles, bool continues = false);
  Status StopTimeline(double timeout_s = 2);
  std::shared_ptr<transport::ResidentHeap> heap() const { return connections_->heap(); }
  std::string DescribeJson();
  std::string DumpJson();
  // In a forked child: closes the descriptors, so that the parent's death is seen by its peers, and cuts the shared
  // tensors off from the parent's. Takes no lock; nothing else may be called after.
  void DetachInChild();

 private:
  // What wakes this rank, and for whom.
  struct Ways {
    std::unique_ptr<Connections> connections;
    std::unique_ptr<Waker> waker;
    std::unique_ptr<Watch> watch;
  };
  static Result<Ways> Open(const hvd_config& config, const Connections::MapArena& map);
  Engine(const hvd_config& config, Ways ways);
  Status Start(const hvd_config& config);
  void Stop(submission::Abort how);
  void AwaitSends(double deadline);
  void BeginStopOfTimeline(double timeout_s);
  void EndTraceOfOthers(double timeout_s);

  const hvd_topology topology_;
  const std::string hostname_, fixed_settings_;
  const Timeline::Plan trace_plan_;
  std::mutex trace_life_;      // serialises its start and stop; guards trace_number_ and others_trace_
  uint32_t trace_number_ = 0;  // of the last trace of all ranks
  bool others_trace_ = false;
  std::string last_words_;  // for the goodbye; "": this rank ends well

  // ---- shared between threads
  const std::unique_ptr<Connections> connections_;
  const std::unique_ptr<Waker> waker_;
  const std::unique_ptr<Watch> watch_;
  Role role_;
  Counters counters_;
  Submissions submissions_;
  HandleTable handles_;
  ProcessSets sets_;
  Timeline timeline_;
  Tuning tuning_;

  // ---- the holder of the role only
  backend::Registry backends_;
  backend::mpi::MpiBackend* mpi_ = nullptr;     // among them
  std::unique_ptr<backend::GpuBackends> gpus_;  // likewise
  Stamp stamp_;
  negotiation::Node node_;
  Arrivals arrivals_;
  SelfSends self_sends_;
  Tracing tracing_;
  Executor executor_;  // tells orders_ and verdict_ how a batch has ended: the one arrow that points down
  Verdict verdict_;
  Feed feed_;
  Orders orders_;
  Progress progress_;
  const std::unique_ptr<Spread> spread_;    // null: no other rank on this host
  const std::unique_ptr<Express> express_;  // null: the ranks are on several hosts, or too many

  // ---- any thread
  Driver driver_;
  Waiter waiter_;
  Intake intake_;
  ExpressPath express_path_;
  Background background_;
};

}  // namespace hvd::engine
