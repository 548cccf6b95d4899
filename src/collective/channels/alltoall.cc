// Alltoall; see collectives.h and, for the algorithm, schedule.h.
#include <numeric>

#include "collective/channels/collectives.h"
#include "collective/channels/own.h"
#include "collective/channels/plan_run.h"
#include "collective/solo.h"

namespace hvd::collective::channels {
namespace {

// Tells every member how many rows it will get from this one, and allocates the results. Nothing waits for anything:
// all of it is in flight at once.
Task AgreeOnRows(const Group& group, const Team& team, Batch& batch) {
  const int n = team.size();
  const size_t n_tensors = batch.tensors.size();
  std::vector<int64_t> to(n * n_tensors), from(n * n_tensors);
  std::vector<Range> blocks;
  for (int p = 0; p < n; ++p) {
    for (size_t i = 0; i < n_tensors; ++i) to[p * n_tensors + i] = batch.tensors[i].splits[team.member[p]];
    blocks.push_back({p * n_tensors, (p + 1) * n_tensors});
  }
  PlanRun::Work work;
  work.unit_bytes = sizeof(int64_t);
  work.input.Add(reinterpret_cast<const std::byte*>(to.data()), to.size() * sizeof(int64_t));
  work.output.Add(reinterpret_cast<std::byte*>(from.data()), from.size() * sizeof(int64_t));
  work.plan = PairwiseExchange(ShapeOf(n, team.index, to.size(), sizeof(int64_t)), blocks, blocks);
  work.seq = batch.seq;
  work.phase = Phase::kSizes;
  PlanRun run(team, std::move(work), &group.scratch, &batch.waiting_for);
  HVD_CO_TRY(co_await run.Finish());
  for (size_t i = 0; i < n_tensors; ++i) {
    Tensor& t = batch.tensors[i];
    t.received_rows.assign(n, 0);
    for (int p = 0; p < n; ++p) {
      t.received_rows[team.member[p]] = p == team.index ? t.splits[group.index] : from[p * n_tensors + i];
    }
    HVD_CO_TRY(PlaceRows(batch, t, t.received_rows));
  }
  co_return Status();
}

size_t RowsBefore(const std::vector<int64_t>& rows, int member) {
  return static_cast<size_t>(std::accumulate(rows.begin(), rows.begin() + member, int64_t{0}));
}

}  // namespace

// n-1 steps of sizes and n-1 steps of rows; each member sends and receives what the splits say. No memory but the
// results. Invariant: both sides of a pair know the size of their block before it travels.
Task Alltoall(const Group& group, Batch& batch) {
  if (group.size() == 1) co_return co_await SoloCollective(group, batch);
  const Team team = TeamOf(group);
  HVD_CO_TRY(co_await AgreeOnRows(group, team, batch));
  const size_t unit = SizeOf(batch.dtype);
  std::vector<Range> sends, receives;
  std::vector<OwnCopy> copies;
  PlanRun::Work work;
  for (int p = 0; p < team.size(); ++p) {
    const int member = team.member[p];
    Range send{work.input.bytes(), 0}, receive{work.output.bytes(), 0};
    for (Tensor& t : batch.tensors) {
      const size_t row_bytes = t.row_elems * unit;
      const std::byte* from = t.input + RowsBefore(t.splits, member) * row_bytes;
      std::byte* to = t.output + RowsBefore(t.received_rows, member) * row_bytes;
      work.input.Add(from, static_cast<size_t>(t.splits[member]) * row_bytes);
      work.output.Add(to, static_cast<size_t>(t.received_rows[member]) * row_bytes);
      if (member == group.index) copies.push_back({to, from, static_cast<size_t>(t.splits[member]) * row_bytes});
    }
    send.end = work.input.bytes();
    receive.end = work.output.bytes();
    sends.push_back(send);
    receives.push_back(receive);
  }
  work.plan =
      PairwiseExchange(ShapeOf(team.size(), team.index, work.input.bytes(), 1, kMovedSegmentBytes), sends, receives);
  work.seq = batch.seq;
  PlanRun run(team, std::move(work), &group.scratch, &batch.waiting_for);
  co_return co_await FinishCopying(run, copies);
}

}  // namespace hvd::collective::channels
