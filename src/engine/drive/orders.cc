#include "engine/drive/orders.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "base/log.h"
#include "collective/shm/collectives.h"
#include "engine/express/exchange.h"
#include "engine/record/dump_call.h"

namespace hvd::engine {
namespace {

// From the input's shape to the result's, in place.
void GiveResultShape(const BatchRun& run, collective::Tensor& t) {
  std::vector<int64_t>& shape = t.shape;
  if (run.batch.type == OpType::kAllgather || run.batch.type == OpType::kAlltoall) {
    shape[0] = std::accumulate(t.received_rows.begin(), t.received_rows.end(), int64_t{0});
  } else if (run.batch.type == OpType::kReducescatter) {
    const collective::Group& group = run.set->group;
    shape[0] = static_cast<int64_t>(
        collective::shm::BlockOfMember(static_cast<size_t>(shape[0]), group.size(), group.index).count);
  }
}

// When the first of its tensors of this rank was submitted; infinity: none is this rank's.
double FirstSubmitted(const negotiation::ExecuteBatch& batch) {
  double first = std::numeric_limits<double>::infinity();
  for (const negotiation::Entry& entry : batch.entries) {
    if (entry.ticket != 0) first = std::min(first, Submitted::Of(entry.ticket)->since);
  }
  return first;
}

int64_t BytesOf(const collective::Tensor& t, DType dtype) { return static_cast<int64_t>(t.elems * SizeOf(dtype)); }

}  // namespace

void Orders::Obey(negotiation::Action& action) {
  std::visit([this](auto& a) { Do(a); }, action);
}

void Orders::Do(negotiation::ExecuteBatch& batch) {
  if (tools_.verdict->failed()) return;
  if (tools_.timeline->mark_cycles()) tools_.timeline->Instant("CYCLE_START");
  if (!tools_.counters->batches_run()) tools_.counters->BatchesBegin(NowS(), FirstSubmitted(batch));
  tools_.executor->Add(batch, tools_.sets->Find(batch.process_set), tools_.submissions);
  const negotiation::Request& first = *batch.entries[0].request;
  if (IsPointToPoint(first.type)) tools_.feed->Answered(first.process_set, first.name);
}

void Orders::Do(negotiation::Exchanged& exchanged) {
  if (tools_.verdict->failed()) return;
  const negotiation::Request& agreed = *exchanged.entry.request;
  const std::shared_ptr<ProcessSets::Set> set = tools_.sets->Find(agreed.process_set);
  // Not taken before it has its result: should memory run out in between, the code that fails everything finds it.
  Submitted* const own = Submitted::Of(exchanged.entry.ticket);
  Status status = Combine(agreed, exchanged.payloads, set->group, own);
  if (!status.ok())
    status = status.Because(negotiation::Subject(own->type, own->name, 0) + " on rank " + std::to_string(tools_.rank));
  tools_.counters->CountBatch(1);
  if (!status.ok()) tools_.counters->CountError(status.message());
  tools_.counters->Note(own->type, own->process_set, own->name, BytesOf(own->tensor, own->dtype));
  own->completion->results[own->index] = {agreed.dtype, std::move(own->tensor)};
  tools_.arrivals->ArriveTaken(tools_.submissions->Take(exchanged.entry.ticket)->completion, std::move(status));
}

// Of this rank: a wish, or a tensor.
void Orders::Do(negotiation::EntryFailed& entry) {
  if (entry.ticket & 1) return EndWish(entry.ticket, 0, std::move(entry.why));
  if (tools_.verdict->failed()) return;
  std::unique_ptr<Submitted> own = tools_.submissions->Take(entry.ticket);
  const bool pair = IsPointToPoint(own->type);
  tools_.counters->CountError(entry.why.message());
  tools_.timeline->Failed(entry.name, entry.process_set);
  if (own->copy != nullptr) KeepFailure(*own, entry);
  tools_.arrivals->ArriveTaken(std::move(own->completion), std::move(entry.why));
  if (pair) tools_.feed->Answered(entry.process_set, entry.name);
}

// Of a send that has returned.
void Orders::KeepFailure(const Submitted& own, const negotiation::EntryFailed& entry) {
  const std::string what = negotiation::Subject(own.type, own.name, own.process_set);
  Log(LogLevel::kWarning, what + " had returned, and has failed: " + entry.why.message());
  tools_.submissions->KeepFailure(entry.process_set, entry.name, entry.why);
}

void Orders::Do(negotiation::SetAdded& set) {
  tools_.sets->Add(set.process_set, set.ranks);
  EndWish(set.ticket, set.process_set, Status());
}

void Orders::Do(negotiation::SetRemoved& set) {
  tools_.sets->Remove(set.process_set);
  // After a failure its submissions are gone.
  if (!tools_.verdict->failed()) tools_.self_sends->DropSet(set.process_set);
  tools_.submissions->ForgetSet(set.process_set);  // its id never comes back: nothing stays of it
  EndWish(set.ticket, set.process_set, Status());
}

void Orders::Do(negotiation::SetChangeFailed& change) { EndWish(change.ticket, 0, std::move(change.why)); }

void Orders::Do(negotiation::AllJoined& join) {
  // Ranks with fewer steps have counted fewer unnamed operations; what comes next must have one name everywhere.
  tools_.submissions->CountAnew(0);
  EndWish(join.ticket, join.last_rank, Status());
}

void Orders::Do(negotiation::ParametersChanged& change) {
  tools_.tuning->Change(change.parameters);
  tools_.stamp->set_exact(change.parameters.cycle_time_ms > 0);
}

void Orders::Do(negotiation::RankLeft& leaver) {
  tools_.tracing->Left(leaver.rank);
  if (leaver.rank != tools_.rank) return tools_.watch->Left(leaver.rank, /*badly=*/!leaver.exception.empty());
  left_ = true;
}

void Orders::Do(negotiation::Aborted& end) { tools_.verdict->Fail(end.why, false); }
void Orders::Do(negotiation::Stalled&) {
  tools_.counters->CountStall();
  DumpCall::Stalled();
}
void Orders::Do(negotiation::LogLine& line) { Log(line.level, line.text); }

void Orders::Do(negotiation::TraceOrder& order) { tools_.tracing->Obey(order, NowS()); }
void Orders::Do(negotiation::TracePiece& piece) { tools_.tracing->Take(piece); }
void Orders::Do(negotiation::ClockQuestion& question) { tools_.tracing->Answer(question, NowS()); }
void Orders::Do(negotiation::ClockAnswer& answer) { tools_.tracing->Take(answer, NowS()); }

void Orders::EndWish(uint64_t ticket, int64_t value, Status status) {
  auto wish = tools_.submissions->TakeWish(ticket);
  if (!wish) return;
  wish->value = value;
  tools_.arrivals->ArriveTaken(std::move(wish), std::move(status));
}

void Orders::Finish(BatchRun& run, const Status& status) {
  if (tools_.executor->size() == 1) tools_.counters->BatchesEnd(NowS());
  tools_.counters->CountBatch(run.own.size());
  if (!status.ok()) tools_.counters->CountError(status.message());
  for (size_t i = 0; !status.ok() && i < run.agreed.size(); ++i)
    tools_.timeline->Failed(run.agreed[i]->name, run.agreed[i]->process_set);
  for (size_t i = 0; i < run.own.size(); ++i) {
    Submitted* own = run.own[i].get();
    if (own == nullptr) continue;
    tools_.counters->Note(own->type, own->process_set, own->name, BytesOf(run.batch.tensors[i], run.batch.dtype));
    Outcome& outcome = own->completion->results[own->index];
    outcome.dtype = run.batch.dtype;
    outcome.tensor = std::move(run.batch.tensors[i]);
    if (status.ok()) GiveResultShape(run, outcome.tensor);
    tools_.arrivals->Arrive(*own->completion, status);
    run.own[i].reset();
  }
}

}  // namespace hvd::engine
