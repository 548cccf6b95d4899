// Allgather and Exchange; see collectives.h and, for the algorithms, schedule.h.
#include <cstring>

#include "collective/channels/collectives.h"
#include "collective/channels/own.h"
#include "collective/channels/plan_run.h"
#include "collective/solo.h"

namespace hvd::collective::channels {

// ceil(log2 n) steps, (n-1) * mine.size() bytes sent per member. Invariant: that of AllgatherBruck.
Task Exchange(const Group& group, Batch& batch, std::span<const std::byte> mine, std::span<std::byte> all) {
  const size_t bytes = mine.size();
  if (bytes > 0) std::memcpy(all.data() + group.index * bytes, mine.data(), bytes);
  const Team team = TeamOf(group);
  const int n = team.size();
  std::vector<size_t> starts;
  PlanRun::Work work;
  for (int r = 0; r < n; ++r) {
    starts.push_back(r * bytes);
    work.output.Add(all.data() + team.member[(team.index + r) % n] * bytes, bytes);
  }
  starts.push_back(n * bytes);
  work.plan = AllgatherBruck(ShapeOf(n, team.index, n * bytes, 1), starts);
  work.seq = batch.seq;
  work.phase = Phase::kSizes;
  PlanRun run(team, std::move(work), &group.scratch, &batch.waiting_for);
  co_return co_await run.Finish();
}

namespace {

// Tells every member the rows of the others and allocates the results.
Task AgreeOnRows(const Group& group, Batch& batch) {
  const size_t n_tensors = batch.tensors.size();
  std::vector<int64_t> mine, all(n_tensors * group.size());
  for (const Tensor& t : batch.tensors) mine.push_back(RowsOf(t));
  HVD_CO_TRY(co_await Exchange(group, batch, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all))));
  for (size_t i = 0; i < n_tensors; ++i) {
    Tensor& t = batch.tensors[i];
    t.received_rows.clear();
    for (int m = 0; m < group.size(); ++m) t.received_rows.push_back(all[m * n_tensors + i]);
    HVD_CO_TRY(PlaceRows(batch, t, t.received_rows));
  }
  co_return Status();
}

}  // namespace

// Sizes first: ceil(log2 n) steps of 8 bytes per tensor. Then one block per member, the tensors' rows behind one
// another: n-1 steps (ring) or ceil(log2 n) (Bruck, small), each member sends and receives the sum of the others' rows.
// No memory but the results. Invariant: a block is forwarded only after it has arrived; its sizes are known to all.
Task Allgather(const Group& group, Batch& batch) {
  if (group.size() == 1) co_return co_await SoloCollective(group, batch);
  if (group.size() == 2) {  // nothing is forwarded, so the rows need not wait for the other's sizes
    co_return co_await ExchangeRows(group, batch,
                                    [](const Tensor& t, int) { return Rows{0, static_cast<size_t>(RowsOf(t))}; });
  }
  HVD_CO_TRY(co_await AgreeOnRows(group, batch));
  const Team team = TeamOf(group);
  const int n = team.size();
  const size_t unit = SizeOf(batch.dtype);
  const auto rows_before = [](const Tensor& t, int member) {
    size_t rows = 0;
    for (int m = 0; m < member; ++m) rows += static_cast<size_t>(t.received_rows[m]);
    return rows;
  };
  std::vector<OwnCopy> copies;
  copies.reserve(batch.tensors.size());
  for (Tensor& t : batch.tensors)
    copies.push_back({t.output + rows_before(t, group.index) * t.row_elems * unit, t.input, t.elems * unit});
  std::vector<size_t> starts{0};
  PlanRun::Work work;
  for (int r = 0; r < n; ++r) {
    const int member = team.member[(team.index + r) % n];
    for (Tensor& t : batch.tensors) {
      const size_t row_bytes = t.row_elems * unit, bytes = static_cast<size_t>(t.received_rows[member]) * row_bytes;
      if (r == 0) {
        work.output.Add(t.input, bytes);  // only sent
      } else {
        work.output.Add(t.output + rows_before(t, member) * row_bytes, bytes);
      }
    }
    starts.push_back(work.output.bytes());
  }
  work.plan = PlanAllgather(MovedShape(n, team.index, work.output.bytes()), starts);
  work.seq = batch.seq;
  PlanRun run(team, std::move(work), &group.scratch, &batch.waiting_for);
  co_return co_await FinishCopying(run, copies);
}

}  // namespace hvd::collective::channels
