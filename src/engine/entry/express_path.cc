#include "engine/entry/express_path.h"

#include <new>

#include "engine/entry/checks.h"
#include "negotiation/values/signature.h"

namespace hvd::engine {
namespace {

// A tensor for a result of another shape than the input.
collective::Tensor Unplaced(const hvd_op& op) {
  collective::Tensor t;
  t.shape.assign(op.shape, op.shape + op.ndim);
  t.output = static_cast<std::byte*>(op.output);
  t.room = static_cast<size_t>(op.output_bytes);
  return t;
}

}  // namespace

// While this rank has requests in flight, every operation uses the negotiated path: the log orders them, and no name
// may be used twice. That path also gives the reason for what is refused here.
bool ExpressPath::MayTake(const hvd_op& op) const {
  if (tools_.express == nullptr || tools_.backends->batches_only() || op.process_set != 0 || op.place != kOnHost ||
      op.type < HVD_ALLREDUCE || op.type > HVD_BARRIER)
    return false;
  if (tools_.verdict->failed() || tools_.timeline->active() || tools_.submissions->any_in_flight()) return false;
  return CheckName(op).ok() && CheckOperation(op, group()).ok();
}

bool ExpressPath::Run(const hvd_op& op, std::string* counted, std::shared_ptr<Completion>* out) {
  if (!MayTake(op)) return false;
  const SmallCollective small(op, group().index, group().size());
  if (!small.Fits(tools_.connections->crowded())) return false;
  const char* name = op.name;
  if (name == nullptr || name[0] == '\0') {
    *counted = tools_.submissions->NextName(0, static_cast<OpType>(op.type));
    name = counted->c_str();
  } else if (tools_.submissions->EverRefused(name)) {
    return false;
  }
  if (!tools_.driver->TryTakeRole()) return false;
  if (!Meet(small, negotiation::Signature(op).Fingerprint(name))) {
    // Not LeaveRole: the caller is back at once, and a look of the background thread in between would make this rank
    // late for the next operation too.
    tools_.driver->PutDownRole();
    return false;
  }
  try {
    tools_.counters->CountBatch(1);
    tools_.counters->Note(static_cast<OpType>(op.type), 0, name, static_cast<int64_t>(small.bytes()));
    Take(small, op, out);
  } catch (const std::bad_alloc&) {  // of this rank only: the others have what they need
    tools_.driver->LeaveRole(Driver::Leaving::kForeground);
    throw;
  }
  tools_.driver->LeaveRole(Driver::Leaving::kForeground);
  return true;
}

bool ExpressPath::Meet(const SmallCollective& small, uint64_t fingerprint) {
  if (tools_.connections->crowded() && tools_.spread != nullptr) tools_.spread->BeforeWait();
  small.Bring(tools_.express->mine());
  if (tools_.executor->gave_up()) return false;
  const bool met = tools_.express->Meet(fingerprint, small.bytes());
  if (tools_.express->waited_s() > 0) tools_.counters->WaitedForOthers(tools_.express->waited_s());
  return met;
}

void ExpressPath::Take(const SmallCollective& small, const hvd_op& op, std::shared_ptr<Completion>* out) {
  collective::Tensor result;
  if (small.has_result()) result = Unplaced(op);
  const std::byte* places[Express::kMostRanks];
  for (int m = 0; m < group().size(); ++m) places[m] = tools_.express->of(m);
  const Status status = small.Take(places, &result);
  if (status.ok() && result.result == nullptr) return;
  if (!status.ok()) tools_.counters->CountError(status.message());
  *out = std::make_shared<Completion>(1);
  (*out)->results[0] = {static_cast<DType>(op.dtype), std::move(result)};
  const int rank = group().ranks[group().index];
  const std::string what = NameOf(static_cast<OpType>(op.type));
  tools_.arrivals->Arrive(**out,
                          status.Because(what + " '" + (op.name ? op.name : "") + "' on rank " + std::to_string(rank)));
}

}  // namespace hvd::engine
