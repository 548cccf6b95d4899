// Broadcast and Barrier; see collectives.h and, for the algorithms, schedule.h.
#include "collective/channels/collectives.h"
#include "collective/channels/own.h"
#include "collective/channels/plan_run.h"
#include "collective/solo.h"

namespace hvd::collective::channels {

// Steps: those of the chosen plan; every member but the root receives the tensors once, straight into its outputs.
// Invariant: a member hands on a segment only after it has arrived; the root sends from its inputs.
Task Broadcast(const Group& group, Batch& batch) {
  if (group.size() == 1) co_return co_await SoloCollective(group, batch);
  const Team team = TeamOf(group);
  const size_t unit = SizeOf(batch.dtype);
  const bool is_root = batch.root == group.index;
  PlanRun::Work work;
  for (const Tensor& t : batch.tensors) {
    work.input.Add(t.input, t.elems * unit);
    if (!is_root) work.output.Add(t.output, t.elems * unit);
  }
  int root = 0;
  while (team.member[root] != batch.root) ++root;
  work.plan = PlanBroadcast(ShapeOf(team.size(), team.index, work.input.bytes(), 1), root, 1);
  work.seq = batch.seq;
  PlanRun run(team, std::move(work), &group.scratch, &batch.waiting_for);
  std::vector<OwnCopy> copies;
  for (const Tensor& t : batch.tensors) {
    if (is_root) copies.push_back({t.output, t.input, t.elems * unit});
  }
  co_return co_await FinishCopying(run, copies);
}

// ceil(log2 n) steps of one byte. Invariant: that of Dissemination.
Task Barrier(const Group& group, Batch& batch) {
  if (group.size() == 1) co_return Status();
  const Team team = TeamOf(group);
  std::byte token{1}, seen{0};
  PlanRun::Work work;
  work.plan = Dissemination(ShapeOf(team.size(), team.index, 1, 1));
  work.input.Add(&token, 1);
  work.output.Add(&seen, 1);
  work.seq = batch.seq;
  PlanRun run(team, std::move(work), &group.scratch, &batch.waiting_for);
  co_return co_await run.Finish();
}

}  // namespace hvd::collective::channels
