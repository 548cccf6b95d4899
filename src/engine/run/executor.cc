#include "engine/run/executor.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "backend/introduction.h"
#include "engine/record/profiler_range.h"

namespace hvd::engine {
namespace {

using backend::Track;

void GoBy(const negotiation::Parameters& parameters, collective::Batch* batch) {
  batch->hierarchical = parameters.two_level_allreduce();
  batch->hierarchical_allgather = parameters.hierarchical_allgather;
}

// Whether the members have agreed for good how they move what lies on their devices.
bool Agreed(const collective::Group& group) { return group.device_way != nullptr && !group.device_way->for_now; }

// The work of a front that is not there yet needs no look.
double LookAgain(const Executor::Runs& runs) {
  if (runs.empty() || runs.front()->runner == nullptr) return std::numeric_limits<double>::infinity();
  return runs.front()->runner->LookAgainInS();
}

}  // namespace

const char* TraceName(OpType type, ReduceOp op) {
  static const char* const kNames[] = {"ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER",
                                       "BARRIER",   "JOIN",      "SEND",      "RECV"};
  return op == ReduceOp::kAdasum && type == OpType::kAllreduce ? "ADASUM" : kNames[static_cast<int>(type)];
}

void Executor::Add(const negotiation::ExecuteBatch& agreed, std::shared_ptr<ProcessSets::Set> set,
                   Submissions* submissions) {
  // The run has its place before it takes anything, so that nothing is lost when memory runs out.
  host_.push_back(std::make_unique<BatchRun>());
  BatchRun& run = *host_.back();
  run.parameters = tools_.tuning->now();
  run.Fill(agreed, std::move(set), submissions, tools_.transports->rank, tools_.backends->devices());
  GoBy(run.parameters, &run.batch);
  if (tools_.timeline->active()) tools_.timeline->Agreed(run.agreed);
  if (!run.batch.on_device) return;
  if (!ForDevices(run)) {
    ++unsettled_;
    return;
  }
  GoOver(&host_.back());
  host_.pop_back();
}

// Whether it is known already that the devices run this batch, and that none before it may follow it there.
bool Executor::ForDevices(BatchRun& run) const {
  if (unsettled_ > 0 || !Agreed(run.set->group)) return false;
  Result<backend::Backend*> backend = tools_.backends->Choose(run.set->group, run.batch);
  if (!backend.ok() || (*backend)->track() != Track::kDevice || (*backend)->Prepares(run.batch)) return false;
  run.backend = *backend;
  return true;
}

// To the devices' track. The run keeps its place until it has the new one.
void Executor::GoOver(std::unique_ptr<BatchRun>* run) {
  device_.emplace_back();
  device_.back() = std::move(*run);
}

// A front of the host's track that has not begun: by which way?
Executor::State Executor::StartOnHost(BatchRun& run, Status* status) {
  collective::Group& group = run.set->group;
  if (run.batch.on_device && !run.introduced && !Agreed(group) && tools_.backends->introducer() != nullptr) {
    run.introduced = true;
    run.stage = BatchRun::Stage::kIntroduction;
    ++run.batch.seq;
    run.runner = std::make_unique<Runner>(tools_.backends->introducer()->Introduce(group, run.batch));
    return State::kRunning;
  }
  Result<backend::Backend*> backend = tools_.backends->Choose(group, run.batch);
  *status = backend.status();
  const bool both = status->ok() && (*backend)->track() == Track::kBoth;
  if (both && !device_.empty()) return State::kWaits;
  if (status->ok() && (*backend)->track() == Track::kDevice) {
    run.backend = *backend;
    if (!run.backend->Prepares(run.batch)) return State::kGoesOver;
    run.stage = BatchRun::Stage::kPreparation;
    run.runner = std::make_unique<Runner>(run.backend->Prepare(group, run.batch));
    return State::kRunning;
  }
  unsettled_ -= run.batch.on_device && !both ? 1 : 0;
  if (!status->ok()) return State::kRefused;  // every member comes to the same answer
  run.backend = *backend;
  Execute(run);
  return State::kRunning;
}

void Executor::Execute(BatchRun& run) {
  if (tools_.timeline->active()) TraceStart(run);
  run.runner = std::make_unique<Runner>(run.backend->Execute(run.set->group, run.batch));
}

Executor::State Executor::Run(BatchRun& run, Track track, bool* moved, Status* status) try {
  const ProfilerRange launch([&] { return run.runner == nullptr ? run.Describe() : ""; });
  if (!run.runner) {
    *status = run.unable;
    if (!status->ok()) return State::kFailed;
    if (track == Track::kDevice) {
      Execute(run);
    } else if (const State begun = StartOnHost(run, status); begun != State::kRunning) {
      return begun;
    }
  }
  *moved |= run.runner->Advance();
  if (!run.runner->done()) return State::kRunning;
  *status = run.runner->result();
  if (run.stage == BatchRun::Stage::kExecution && tools_.timeline->active()) TraceEnd(run, status->ok());
  if (!status->ok()) return State::kFailed;
  if (run.stage == BatchRun::Stage::kIntroduction) return State::kIntroduced;
  return run.stage == BatchRun::Stage::kPreparation ? State::kGoesOver : State::kDone;
} catch (const std::bad_alloc&) {
  *status = OutOfMemory();
  return State::kFailed;
}

Executor::Moved Executor::Advance() {
  Moved moved;
  moved.host = Advance(Track::kHost, &host_);
  moved.device = Advance(Track::kDevice, &device_);
  return moved;
}

bool Executor::Advance(Track track, Runs* runs) {
  bool moved = false;
  while (!gave_up_ && !runs->empty()) {
    BatchRun& run = *runs->front();
    Status status;
    switch (Run(run, track, &moved, &status)) {
      case State::kRunning:
      case State::kWaits:
        return moved;
      case State::kFailed:
        run.runner.reset();
        GiveUp();
        listener_.gave_up(Explain(run, status));
        return true;
      case State::kIntroduced:
        run.runner.reset();
        run.stage = BatchRun::Stage::kExecution;
        finished_seq_ = run.batch.seq++;
        break;
      case State::kGoesOver:
        if (run.stage == BatchRun::Stage::kPreparation) finished_seq_ = run.batch.seq;
        run.runner.reset();
        run.stage = BatchRun::Stage::kExecution;
        --unsettled_;
        GoOver(&runs->front());
        runs->pop_front();
        break;
      case State::kDone:
      case State::kRefused:
        if (track == Track::kHost) finished_seq_ = run.batch.seq;
        if (run.backend != nullptr && run.backend->track() == Track::kBoth) --unsettled_;
        if (status.ok() && run.backend != nullptr) run.backend->CountBatch();
        listener_.finished(run, status);
        if (!run.stand_ins.empty()) KeepStandIns(run);
        runs->pop_front();
    }
    moved = true;
  }
  return moved;
}

// By the host's ways the members wait for one another, and each for its device: also before a batch of this set, when
// one of them is still at a batch of another set. What the devices' track launches is waited for elsewhere
// (Backend::CheckDevices), but for room there.
bool Executor::waits_for_devices(Track track) const {
  if (runs(track).empty()) return false;
  const BatchRun& front = *runs(track).front();
  if (!front.batch.on_device) return false;
  return track == Track::kHost || front.batch.awaits_device;
}

double Executor::LookAgainInS() const {
  if (gave_up_) return std::numeric_limits<double>::infinity();
  return std::min(LookAgain(host_), LookAgain(device_));
}

// Of a batch that has ended: what devices still work with.
void Executor::KeepStandIns(BatchRun& run) {
  FreeStandIns();
  Lingering one;
  for (const collective::Tensor& t : run.batch.tensors) {
    if (t.device != nullptr && t.device->ready != nullptr) one.ends.push_back(t.device->ready);
  }
  if (one.ends.empty()) return;
  one.blocks = std::move(run.stand_ins);
  lingering_.push_back(std::move(one));
}

void Executor::FreeStandIns() {
  std::erase_if(lingering_, [](const Lingering& one) {
    return std::all_of(one.ends.begin(), one.ends.end(), [](const auto& end) { return end->Reached(); });
  });
}

// Of the neighbours, who waits for this rank in a batch that it has not finished, now or later, fails.
void Executor::GiveUp() {
  if (std::exchange(gave_up_, true)) return;
  if (tools_.transports->neighbours) tools_.transports->neighbours->Abandon(finished_seq_ + 1);
}

Executor::Runs Executor::Cancel() {
  for (Runs* const runs : {&host_, &device_}) {
    for (auto& run : *runs) run->runner.reset();
  }
  GiveUp();
  Runs all = std::exchange(host_, {});
  for (; !device_.empty(); device_.pop_front()) all.push_back(std::move(device_.front()));
  return all;
}

// A failure that does not say so itself: of which tensor, on which rank.
Status Executor::Explain(const BatchRun& run, const Status& why) const try {
  if ((why.code() != Code::kInternal && why.code() != Code::kResource) || !run.unable.ok()) return why;
  std::string what = run.Describe();
  for (size_t i = 0; i < run.agreed.size(); ++i) {
    const std::unique_ptr<collective::Block>& result = run.batch.tensors[i].result;
    if (result && result->data == nullptr)
      what = std::string(NameOf(run.batch.type)) + " '" + run.agreed[i]->name + "'";
  }
  return why.Because(what + " on rank " + std::to_string(tools_.transports->rank));
} catch (const std::bad_alloc&) {
  return why;
}

void Executor::TraceStart(BatchRun& run) {
  const std::string activity = run.backend->ActivityName(run.set->group, run.batch);
  tools_.timeline->Began({.kind = TraceEvent::Kind::kBegan,
                          .name = activity,
                          .operation = TraceName(run.batch.type, run.batch.op),
                          .tensors = run.agreed,
                          .seq = run.batch.seq,
                          .on_device_track = run.backend->track() == Track::kDevice});
  const backend::Devices* const devices = run.batch.on_device ? tools_.backends->devices() : nullptr;
  std::shared_ptr<DeviceClock> clock = devices == nullptr ? nullptr : devices->clock();
  if (clock != nullptr) run.batch.phases = std::make_shared<Phases>(std::move(clock));
}

void Executor::TraceEnd(BatchRun& run, bool launched) {
  if (launched && run.batch.phases != nullptr) {
    Followed followed{{}, std::move(run.batch.phases)};
    for (const auto& r : run.agreed) followed.tensors.push_back(RowOf(*r));
    tools_.timeline->Follow(std::move(followed));
  }
  int64_t bytes = 0;
  for (const collective::Tensor& t : run.batch.tensors)
    bytes += static_cast<int64_t>(t.elems * SizeOf(run.batch.dtype));
  tools_.timeline->Ended(run.agreed, run.batch.seq, bytes);
}

}  // namespace hvd::engine
