#include "engine/executor.h"

#include <limits>
#include <new>
#include <utility>

#include "base/average.h"
#include "collective/kernels/kernels.h"

namespace hvd::engine {
namespace {

// A joined rank has no tensor: it contributes the neutral value of the operation and throws the result away, so that
// Average still divides by the full size of the set. Without memory for that it is unable.
collective::Tensor StandIn(const negotiation::Request& r, ReduceOp op, int rank, BatchRun* run) {
  collective::Tensor t;
  t.shape = r.shape;
  t.elems = 1;
  for (const int64_t extent : t.shape) t.elems *= static_cast<size_t>(extent);
  run->stand_ins.push_back(std::make_unique<collective::Block>(t.elems * SizeOf(r.dtype)));
  const collective::Block& memory = *run->stand_ins.back();
  t.input = t.output = memory.data;
  if (memory.data != nullptr) {
    collective::kernels::FillIdentity(r.dtype, op == ReduceOp::kAdasum ? ReduceOp::kSum : op, memory.data, t.elems);
  } else if (run->unable.ok()) {
    run->unable = Status(Code::kResource, std::string(NameOf(r.type)) + " '" + r.name + "': rank " +
                                              std::to_string(rank) + " has joined and has no memory for the " +
                                              std::to_string(memory.bytes) + " bytes that stand in for its tensor.");
  }
  return t;
}

std::string ShapeJson(const std::vector<int64_t>& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? "," : "") + std::to_string(shape[i]);
  return s + "]";
}

// Between two batches: nobody works with the group now.
void GoBy(const negotiation::Parameters& parameters, collective::Group* group) {
  group->hierarchical = parameters.two_level_allreduce();
  group->hierarchical_allgather = parameters.hierarchical_allgather;
}

}  // namespace

const char* TraceName(OpType type, ReduceOp op) {
  static const char* const kNames[] = {"ALLREDUCE",     "ALLGATHER", "BROADCAST", "ALLTOALL",
                                       "REDUCESCATTER", "BARRIER",   "JOIN"};
  return op == ReduceOp::kAdasum && type == OpType::kAllreduce ? "ADASUM" : kNames[static_cast<int>(type)];
}

void Executor::Add(const negotiation::ExecuteBatch& agreed, std::shared_ptr<ProcessSets::Set> set,
                   Submissions* submissions) {
  // The run has its place before it takes anything, so that nothing is lost when memory runs out.
  runs_.push_back(std::make_unique<BatchRun>());
  BatchRun& run = *runs_.back();
  const negotiation::Request& first = *agreed.entries[0].request;
  collective::Batch& b = run.batch;
  b.seq = agreed.seq;
  run.parameters = tools_.tuning->now();
  b.type = first.type;
  b.dtype = first.dtype;
  b.op = first.op == ReduceOp::kAverage ? ReduceOp::kSum : first.op;
  b.prescale = first.prescale;
  b.postscale = first.postscale;
  if (first.op == ReduceOp::kAverage) b.postscale *= AverageFactor(first.dtype, set->group.size());
  if (first.type == OpType::kBroadcast) {
    while (set->group.ranks[b.root] != first.root) ++b.root;  // validated: the root is a member
  }
  run.agreed.reserve(agreed.entries.size());
  run.own.reserve(agreed.entries.size());
  b.tensors.reserve(agreed.entries.size());
  for (const negotiation::Entry& e : agreed.entries) {
    run.agreed.push_back(e.request);
    if (e.ticket == 0) {
      b.tensors.push_back(StandIn(*e.request, b.op, tools_.transports->rank, &run));
      run.own.push_back(nullptr);
    } else {
      run.own.push_back(submissions->Take(e.ticket));
      b.tensors.push_back(std::move(run.own.back()->tensor));
    }
    if (tools_.timeline->active()) tools_.timeline->End(e.request->name);  // NEGOTIATE_...
  }
  run.set = std::move(set);
}

Status Executor::Start(BatchRun& run) {
  GoBy(run.parameters, &run.set->group);
  Result<backend::Backend*> backend = tools_.backends->Choose(run.set->group, run.batch);
  HVD_TRY(backend.status());
  if (tools_.timeline->active()) TraceStart(run, (*backend)->ActivityName(run.set->group, run.batch));
  run.runner = std::make_unique<Runner>((*backend)->Execute(run.set->group, run.batch));
  return Status();
}

Executor::State Executor::Run(BatchRun& run, bool* moved, Status* status) try {
  if (!run.runner) {
    *status = run.unable;
    if (!status->ok()) return State::kFailed;
    *status = Start(run);
    if (!status->ok()) return State::kRefused;  // every member comes to the same answer
  }
  *moved |= run.runner->Advance();
  if (!run.runner->done()) return State::kRunning;
  if (tools_.timeline->active()) TraceEnd(run);
  *status = run.runner->result();
  return status->ok() ? State::kDone : State::kFailed;
} catch (const std::bad_alloc&) {
  *status = OutOfMemory();
  return State::kFailed;
}

bool Executor::Advance() {
  bool moved = false;
  while (running()) {
    BatchRun& run = *runs_.front();
    Status status;
    const State state = Run(run, &moved, &status);
    if (state == State::kRunning) return moved;
    if (state == State::kFailed) {
      run.runner.reset();
      GiveUp();
      listener_.gave_up(Explain(run, status));
      return true;
    }
    finished_seq_ = run.batch.seq;
    listener_.finished(run, status);
    runs_.pop_front();
    moved = true;
  }
  return moved;
}

double Executor::LookAgainInS() const {
  if (!running() || runs_.front()->runner == nullptr) return std::numeric_limits<double>::infinity();
  return runs_.front()->runner->LookAgainInS();
}

// Of the neighbours, who waits for this rank in a batch that it has not finished, now or later, fails.
void Executor::GiveUp() {
  if (std::exchange(gave_up_, true)) return;
  if (tools_.transports->neighbours) tools_.transports->neighbours->Abandon(finished_seq_ + 1);
}

std::deque<std::unique_ptr<BatchRun>> Executor::Cancel() {
  for (auto& run : runs_) run->runner.reset();
  GiveUp();
  return std::exchange(runs_, {});
}

// A failure that does not say so itself: of which tensor, on which rank.
Status Executor::Explain(const BatchRun& run, const Status& why) const try {
  if ((why.code() != Code::kInternal && why.code() != Code::kResource) || !run.unable.ok()) return why;
  std::string what = Describe();
  for (size_t i = 0; i < run.agreed.size(); ++i) {
    const std::unique_ptr<collective::Block>& result = run.batch.tensors[i].result;
    if (result && result->data == nullptr)
      what = std::string(NameOf(run.batch.type)) + " '" + run.agreed[i]->name + "'";
  }
  return why.Because(what + " on rank " + std::to_string(tools_.transports->rank));
} catch (const std::bad_alloc&) {
  return why;
}

std::string Executor::Describe() const {
  if (runs_.empty()) return "nothing";
  const BatchRun& run = *runs_.front();
  std::string text = std::string(NameOf(run.batch.type)) + " '" + run.agreed[0]->name + "'";
  if (run.agreed.size() > 1) text += " and " + std::to_string(run.agreed.size() - 1) + " more";
  return text;
}

void Executor::TraceStart(const BatchRun& run, const std::string& activity) {
  for (const auto& r : run.agreed) {
    tools_.timeline->Begin(r->name, TraceName(run.batch.type, run.batch.op));
    tools_.timeline->Begin(r->name, activity);
  }
}

void Executor::TraceEnd(const BatchRun& run) {
  for (const auto& r : run.agreed) {
    tools_.timeline->End(r->name);
    tools_.timeline->End(
        r->name, std::string("{\"dtype\":\"") + NameOf(r->dtype) + "\",\"shape\":\"" + ShapeJson(r->shape) + "\"}");
  }
}

}  // namespace hvd::engine
