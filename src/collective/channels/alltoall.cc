// Alltoall, and an allgather of two; see collectives.h and, for the algorithm, schedule.h.
#include <numeric>

#include "collective/channels/collectives.h"
#include "collective/channels/own.h"
#include "collective/channels/plan_run.h"
#include "collective/solo.h"

namespace hvd::collective::channels {
namespace {

size_t RowsBefore(const std::vector<int64_t>& rows, int member) {
  return static_cast<size_t>(std::accumulate(rows.begin(), rows.begin() + member, int64_t{0}));
}

// Tells every member how many rows it will get from this one, and allocates the results. Nothing waits for anything:
// all of it is in flight at once, and the rows behind it, if that run is given.
Task AgreeOnRows(const Team& team, Batch& batch, RowsTo rows_to, PlanRun* rows) {
  const int n = team.size();
  const size_t n_tensors = batch.tensors.size();
  std::vector<int64_t> to(n * n_tensors), from(n * n_tensors);
  std::vector<Range> blocks;
  for (int p = 0; p < n; ++p) {
    for (size_t i = 0; i < n_tensors; ++i)
      to[p * n_tensors + i] = static_cast<int64_t>(rows_to(batch.tensors[i], team.member[p]).count);
    blocks.push_back({p * n_tensors, (p + 1) * n_tensors});
  }
  PlanRun::Work work;
  work.unit_bytes = sizeof(int64_t);
  work.input.Add(reinterpret_cast<const std::byte*>(to.data()), to.size() * sizeof(int64_t));
  work.output.Add(reinterpret_cast<std::byte*>(from.data()), from.size() * sizeof(int64_t));
  work.plan = PairwiseExchange(ShapeOf(n, team.index, to.size(), sizeof(int64_t)), blocks, blocks);
  work.seq = batch.seq;
  work.phase = Phase::kSizes;
  std::vector<std::byte> scratch;
  PlanRun run(team, std::move(work), &scratch, &batch.waiting_for);
  HVD_CO_TRY(co_await run.Finish(rows));
  for (size_t i = 0; i < n_tensors; ++i) {
    Tensor& t = batch.tensors[i];
    t.received_rows.assign(n, 0);
    for (int p = 0; p < n; ++p) t.received_rows[team.member[p]] = (p == team.index ? to : from)[p * n_tensors + i];
    HVD_CO_TRY(PlaceRows(batch, t, t.received_rows));
  }
  co_return Status();
}

}  // namespace

Task ExchangeRows(const Group& group, Batch& batch, RowsTo rows_to) {
  const Team team = TeamOf(group);
  const int n = team.size();
  const size_t unit = SizeOf(batch.dtype);
  std::vector<Range> sends, receives;
  const std::vector<Range> none(n);
  PlanRun::Work work;
  for (const int member : team.member) {
    const size_t begin = work.input.bytes();
    for (const Tensor& t : batch.tensors) {
      const Rows rows = rows_to(t, member);
      const size_t row_bytes = t.row_elems * unit;
      if (member != group.index) work.input.Add(t.input + rows.first * row_bytes, rows.count * row_bytes);
    }
    sends.push_back({begin, work.input.bytes()});
  }
  // Of much the beginning would only be in the way: this choice is this member's own, and changes no message.
  const bool at_once = work.input.bytes() <= kSegmentBytes;
  const Shape shape = ShapeOf(n, team.index, work.input.bytes(), 1, kMovedSegmentBytes);
  work.plan = PairwiseExchange(shape, sends, none);
  work.seq = batch.seq;
  PlanRun run(team, std::move(work), &group.scratch, &batch.waiting_for);
  HVD_CO_TRY(co_await AgreeOnRows(team, batch, rows_to, at_once ? &run : nullptr));
  std::vector<OwnCopy> copies;
  Pieces output;
  for (const int member : team.member) {
    const size_t begin = output.bytes();
    for (Tensor& t : batch.tensors) {
      const size_t row_bytes = t.row_elems * unit, bytes = static_cast<size_t>(t.received_rows[member]) * row_bytes;
      std::byte* to = t.output + RowsBefore(t.received_rows, member) * row_bytes;
      if (member == group.index) {
        copies.push_back({to, t.input + rows_to(t, member).first * row_bytes, bytes});
      } else {
        output.Add(to, bytes);
      }
    }
    receives.push_back({begin, output.bytes()});
  }
  run.Expect(PairwiseExchange(shape, none, receives).receives, std::move(output));
  co_return co_await FinishCopying(run, copies);
}

// n-1 steps of sizes and n-1 steps of rows; each member sends and receives what the splits say.
Task Alltoall(const Group& group, Batch& batch) {
  if (group.size() == 1) co_return co_await SoloCollective(group, batch);
  co_return co_await ExchangeRows(group, batch, [](const Tensor& t, int member) {
    return Rows{RowsBefore(t.splits, member), static_cast<size_t>(t.splits[member])};
  });
}

}  // namespace hvd::collective::channels
