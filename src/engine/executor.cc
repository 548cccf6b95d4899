#include "engine/executor.h"

#include <cmath>

#include "collective/kernels.h"

namespace hvd {
namespace {

// A joined rank has no tensor: it contributes the identity of the operation and throws the result away (house rule:
// absent ranks count as the identity, Average divides by the full size of the set).
Tensor StandIn(const Request& r, ReduceOp op, std::vector<std::unique_ptr<Block>>* memory) {
  Tensor t;
  t.shape = r.shape;
  t.elems = 1;
  for (const int64_t extent : t.shape) t.elems *= static_cast<size_t>(extent);
  memory->push_back(std::make_unique<Block>(t.elems * SizeOf(r.dtype)));
  FillIdentity(r.dtype, op == ReduceOp::kAdasum ? ReduceOp::kSum : op, memory->back()->data, t.elems);
  t.input = t.output = memory->back()->data;
  return t;
}

std::string ShapeJson(const std::vector<int64_t>& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? "," : "") + std::to_string(shape[i]);
  return s + "]";
}

}  // namespace

const char* TraceName(OpType type, ReduceOp op) {
  static const char* const kNames[] = {"ALLREDUCE",     "ALLGATHER", "BROADCAST", "ALLTOALL",
                                       "REDUCESCATTER", "BARRIER",   "JOIN"};
  return op == ReduceOp::kAdasum && type == OpType::kAllreduce ? "ADASUM" : kNames[static_cast<int>(type)];
}

double AverageFactor(DType dtype, int n) {
  const double factor = 1.0 / n;
  return IsFloat(dtype) || n == 1 ? factor : std::nextafter(factor, 1.0);
}

void Executor::Add(const Action& action, std::shared_ptr<ProcessSets::Set> set, Submissions* submissions) {
  auto job = std::make_unique<Job>();
  const Request& first = *action.entries[0].request;
  Batch& b = job->batch;
  b.seq = action.seq;
  b.type = first.type;
  b.dtype = first.dtype;
  b.op = first.op == ReduceOp::kAverage ? ReduceOp::kSum : first.op;
  b.prescale = first.prescale;
  b.postscale = first.postscale;
  if (first.op == ReduceOp::kAverage) b.postscale *= AverageFactor(first.dtype, set->group.size());
  if (first.type == OpType::kBroadcast) {
    while (set->group.ranks[b.root] != first.root) ++b.root;  // validated: the root is a member
  }
  for (const Entry& e : action.entries) {
    job->agreed.push_back(e.request);
    if (e.ticket == 0) {
      b.tensors.push_back(StandIn(*e.request, b.op, &job->stand_ins));
      job->own.push_back(nullptr);
    } else {
      job->own.push_back(submissions->Take(e.ticket));
      b.tensors.push_back(std::move(job->own.back()->tensor));
    }
    if (timeline_->active()) timeline_->End(e.request->name);  // NEGOTIATE_...
  }
  job->set = std::move(set);
  jobs_.push_back(std::move(job));
}

Status Executor::Start(Job& job) {
  Result<Backend*> backend = backends_->Choose(job.set->group, job.batch);
  HVD_TRY(backend.status());
  if (timeline_->active()) TraceStart(job, (*backend)->ActivityName(job.set->group, job.batch));
  job.runner = std::make_unique<Runner>((*backend)->Execute(job.set->group, job.batch));
  return Status();
}

bool Executor::Advance() {
  bool moved = false;
  while (!jobs_.empty()) {
    Job& job = *jobs_.front();
    if (!job.runner) {
      if (const Status refused = Start(job); !refused.ok()) {
        // Every member comes to the same answer: the tensors fail, the engine goes on.
        const std::unique_ptr<Job> done = std::move(jobs_.front());
        jobs_.pop_front();
        finished_seq_ = done->batch.seq;
        finished_(*done, refused, /*fatal=*/false);
        return true;
      }
    }
    moved |= job.runner->Advance();
    if (!job.runner->done()) return moved;
    if (timeline_->active()) TraceEnd(job);
    const std::unique_ptr<Job> done = std::move(jobs_.front());
    jobs_.pop_front();
    const Status status = done->runner->result();
    if (status.ok()) finished_seq_ = done->batch.seq;
    finished_(*done, status, !status.ok());
    if (!status.ok()) return true;
  }
  return moved;
}

std::deque<std::unique_ptr<Job>> Executor::Cancel() {
  std::deque<std::unique_ptr<Job>> jobs = std::move(jobs_);
  jobs_.clear();
  for (auto& job : jobs) job->runner.reset();
  return jobs;
}

std::string Executor::Describe() const {
  if (jobs_.empty()) return "nothing";
  const Job& job = *jobs_.front();
  std::string text = std::string(NameOf(job.batch.type)) + " '" + job.agreed[0]->name + "'";
  if (job.agreed.size() > 1) text += " and " + std::to_string(job.agreed.size() - 1) + " more";
  return text;
}

void Executor::TraceStart(const Job& job, const std::string& activity) {
  for (const auto& r : job.agreed) {
    timeline_->Begin(r->name, TraceName(job.batch.type, job.batch.op));
    timeline_->Begin(r->name, activity);
  }
}

void Executor::TraceEnd(const Job& job) {
  for (const auto& r : job.agreed) {
    timeline_->End(r->name);
    timeline_->End(r->name,
                   std::string("{\"dtype\":\"") + NameOf(r->dtype) + "\",\"shape\":\"" + ShapeJson(r->shape) + "\"}");
  }
}

}  // namespace hvd
