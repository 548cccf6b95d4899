// Reducescatter; see collectives.h and, for the algorithm, schedule.h.
#include "collective/channels/collectives.h"
#include "collective/channels/own.h"
#include "collective/channels/plan_run.h"
#include "collective/solo.h"

namespace hvd::collective::channels {

// n-1 steps, (n-1)/n of the tensors sent per member, no memory but the results and a segment. The inputs are not
// changed: what arrives is multiplied by the prescale factor in the staging memory. Invariant: after step k the result
// holds the combination of the own part with those of the k positions before.
Task Reducescatter(const Group& group, Batch& batch) {
  if (group.size() == 1) co_return co_await SoloCollective(group, batch);
  const Team team = TeamOf(group);
  const size_t unit = SizeOf(batch.dtype);
  std::vector<Range> parts;
  PlanRun::Work work;
  for (int p = 0; p < team.size(); ++p) {
    const size_t begin = work.input.bytes() / unit;
    for (Tensor& t : batch.tensors) {
      const Range rows = PartOf(static_cast<size_t>(RowsOf(t)), team.size(), team.member[p]);
      const size_t row_bytes = t.row_elems * unit;
      work.input.Add(t.input + rows.begin * row_bytes, rows.size() * row_bytes);
      if (p != team.index) continue;
      HVD_CO_TRY(t.PlaceResult(rows.size() * row_bytes));
      work.output.Add(t.output, rows.size() * row_bytes);
    }
    parts.push_back({begin, work.input.bytes() / unit});
  }
  work.unit_bytes = unit;
  work.own_at = parts[team.index].begin;
  work.plan = PairwiseReduce(ShapeOf(team.size(), team.index, work.input.bytes() / unit, unit), parts);
  work.dtype = batch.dtype;
  work.op = batch.op;
  work.receive_factor = batch.prescale;
  work.last_factor = batch.postscale;
  work.seq = batch.seq;
  PlanRun run(team, std::move(work), &group.scratch, &batch.waiting_for);
  co_return co_await run.Finish();
}

}  // namespace hvd::collective::channels
