// SendOrRecv; see collectives.h.
#include "collective/channels/collectives.h"
#include "collective/channels/plan_run.h"

namespace hvd::collective::channels {

// One message after the other, from the sender's own memory into the receiver's.
Task SendOrRecv(const Group& group, Batch& batch) {
  const bool sends = group.index == batch.root;
  const int other = sends ? batch.receiver : batch.root;
  const Tensor& t = batch.tensors[0];
  const size_t bytes = t.elems * SizeOf(batch.dtype);
  Team team;
  team.rank = group.ranks[group.index];
  team.index = sends ? 0 : 1;
  team.member = {batch.root, batch.receiver};
  team.channels = {nullptr, nullptr};
  team.channels[1 - team.index] = group.channels[other];
  PlanRun::Work work;
  work.plan = SwapBytes(1 - team.index, sends ? bytes : 0, sends ? 0 : bytes);
  if (sends) work.input.Add(t.input, bytes);
  if (!sends) work.output.Add(t.output, bytes);
  work.seq = batch.seq;
  PlanRun run(team, std::move(work), &group.scratch, &batch.waiting_for);
  co_return co_await run.Finish();
}

}  // namespace hvd::collective::channels
