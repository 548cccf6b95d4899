// Allreduce; see collectives.h and, for the algorithms, schedule.h.
#include "collective/channels/collectives.h"
#include "collective/channels/own.h"
#include "collective/channels/plan_run.h"
#include "collective/solo.h"

namespace hvd::collective::channels {

// Steps, bytes and memory: those of the chosen plan; a prescale factor adds one pass over the own tensors. Invariant:
// the output holds the combination of the members received so far; where none has been received yet, the own operand is
// still in the input.
Task Allreduce(const Group& group, Batch& batch) {
  if (group.size() == 1) co_return co_await SoloCollective(group, batch);
  HVD_CO_TRY(co_await PrescaleOwn(batch));
  const Team team = TeamOf(group);
  PlanRun::Work work;
  work.unit_bytes = SizeOf(batch.dtype);
  for (const Tensor& t : batch.tensors) {
    work.input.Add(OwnOperand(batch, t), t.elems * work.unit_bytes);
    work.output.Add(t.output, t.elems * work.unit_bytes);
  }
  const size_t elems = work.output.bytes() / work.unit_bytes;
  work.plan = PlanAllreduce(ShapeOf(team.size(), team.index, elems, work.unit_bytes), work.unit_bytes);
  work.dtype = batch.dtype;
  work.op = batch.op;
  work.last_factor = batch.postscale;
  work.seq = batch.seq;
  PlanRun run(team, std::move(work), &group.scratch, &batch.waiting_for);
  co_return co_await run.Finish();
}

}  // namespace hvd::collective::channels
