// Executor: runs the batches of the order log on this rank, step by step, in two tracks: what goes by the host's ways,
// one at a time and in log order; and what devices do by themselves, which is launched in log order. Neither waits for
// the other (docs/design/0022-devices.md). Builds a batch from the agreed requests and this rank's own tensors (or
// stand-ins, when it has joined). Used by the holder of the driver role only.
//
// A batch on devices goes to the devices' track at once when it is known that they can run it: the members of its set
// have been introduced to one another, and no such batch is before it on the host's track whose way is not decided, or
// that needs both tracks. Else it queues on the host's track, is introduced and prepared there if need be, and then
// goes over or runs where it is. So the devices' track has the log's order on every rank, whatever a rank knew when.
//
// A batch that fails here is the last: the neighbours learn at once that this rank has given up, and nothing that
// comes behind it runs. What this rank did for a later batch (its progress word, its bytes in a channel) would be taken
// for its part in the failed one by members that are still in it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/record/timeline.h"
#include "engine/run/batch_run.h"
#include "engine/run/tuning.h"

namespace hvd::engine {

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
    // A batch has run (on devices: is on its way), or all members have refused it alike.
    std::function<void(BatchRun& run, const Status& status)> finished;
    // A batch failed on this rank, which has given up. The tensors wait for Cancel, which may be called in here.
    std::function<void(const Status& why)> gave_up;
  };
  struct Moved {
    bool host = false, device = false;  // on which track
    explicit operator bool() const { return host || device; }
  };
  using Runs = std::deque<std::unique_ptr<BatchRun>>;

  Executor(const Tools& tools, Listener listener) : tools_(tools), listener_(std::move(listener)) {}

  // `submissions` yields this rank's tensors by ticket.
  void Add(const negotiation::ExecuteBatch& agreed, std::shared_ptr<ProcessSets::Set> set, Submissions* submissions);
  // Runs what can run now.
  Moved Advance();
  // Gives up, for good; returns what was not finished.
  Runs Cancel();
  // Gives back what stood in for tensors of this rank, where devices are through with it.
  void FreeStandIns();

  // Batches that are not finished, also when this rank has given up.
  size_t size() const { return host_.size() + device_.size(); }
  bool running() const { return size() > 0 && !gave_up_; }
  bool running(backend::Track track) const { return !gave_up_ && !runs(track).empty(); }
  bool gave_up() const { return gave_up_; }
  // Of the host's track; 0: nothing runs there.
  uint64_t running_seq() const { return host_.empty() ? 0 : host_.front()->batch.seq; }
  // The rank that a running batch waits for over a channel, -1: none known.
  int waiting_for(backend::Track track) const {
    return runs(track).empty() ? -1 : runs(track).front()->batch.waiting_for;
  }
  // Whether what a running batch waits for may be a member's device.
  bool waits_for_devices(backend::Track track) const;
  // When a running batch must be looked at again although nothing wakes this rank; infinity: none need be.
  double LookAgainInS() const;
  // "allreduce 'x' and 3 more", for reports.
  std::string Describe() const { return Describe(host_.empty() ? backend::Track::kDevice : backend::Track::kHost); }
  std::string Describe(backend::Track track) const {
    return runs(track).empty() ? "nothing" : runs(track).front()->Describe();
  }

 private:
  enum class State { kRunning, kWaits, kDone, kRefused, kFailed, kIntroduced, kGoesOver };
  // Blocks, and the moments until which devices work with them.
  struct Lingering {
    std::vector<std::unique_ptr<collective::Block>> blocks;
    std::vector<std::shared_ptr<DeviceEvent>> ends;
  };

  const Runs& runs(backend::Track track) const { return track == backend::Track::kHost ? host_ : device_; }
  bool ForDevices(BatchRun& run) const;
  void GoOver(std::unique_ptr<BatchRun>* run);
  bool Advance(backend::Track track, Runs* runs);
  State Run(BatchRun& run, backend::Track track, bool* moved, Status* status);
  State StartOnHost(BatchRun& run, Status* status);
  void Execute(BatchRun& run);
  void KeepStandIns(BatchRun& run);
  void GiveUp();
  Status Explain(const BatchRun& run, const Status& why) const;
  void TraceStart(BatchRun& run);
  void TraceEnd(BatchRun& run, bool launched);

  const Tools tools_;
  const Listener listener_;
  Runs host_, device_;
  size_t unsettled_ = 0;  // batches on devices in host_ that may yet go over, or that devices work for there
  std::vector<Lingering> lingering_;
  uint64_t finished_seq_ = 0;  // of the last batch, or introduction, that ran to its end on the host's track here
  bool gave_up_ = false;
};

// "ALLREDUCE", "ADASUM", ...: what a trace calls an operation.
const char* TraceName(OpType type, ReduceOp op);

}  // namespace hvd::engine
