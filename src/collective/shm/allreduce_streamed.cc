// Allreduce of a virtual concatenation of tensors through the stages, chunk by chunk; see collectives.h.
#include <algorithm>

#include "collective/shm/allreduce.h"

namespace hvd::collective::shm {
namespace {

// A batch of few megabytes is cut into small chunks, so that copies and reductions of the ranks overlap; measured,
// cutting below 128 KB costs more in synchronisations than it hides. In a long batch a rank's share is 128 KB: what a
// rank touches for two chunks stays in a cache of 1 MB.
constexpr size_t kFewestChunks = 4, kSmallestChunk = 128 << 10, kLargestShare = 128 << 10;

size_t ChunkLimit(size_t total, int n) {
  const size_t largest = std::clamp(kLargestShare * n, kSmallestChunk, LocalView::stage_bytes());
  return std::clamp(total / kFewestChunks, kSmallestChunk, largest);
}

struct Part {
  size_t begin, end;
};

// The share of a member in a chunk. Shares begin at the same places of all chunks, also of the last, shorter one: a
// stage's share of its owner is never touched by a copy-in.
Part ShareOf(const StreamPlan& plan, size_t total, size_t c, int member) {
  const size_t chunk = c * plan.chunk_bytes, end = std::min(total, chunk + plan.chunk_bytes);
  const size_t begin = std::min(end, chunk + member * plan.share_bytes);
  return {begin, std::min(end, begin + plan.share_bytes)};
}

// Where the combined share of `owner` in a chunk lies for `reader`. With two members the owner stores it back to where
// the reader's data came from: those cache lines are at hand, which halves the traffic between the cores (65 instead of
// 100 us for 1 MB). With more members that would be n - 1 stores of every result, so the owner stores it once, into its
// own stage.
int ResultStage(int n, int owner, int reader) { return n == 2 ? reader : owner; }

// Combines this rank's share of chunk c into its outputs and a stage. The own data is read from the inputs. Where the
// outputs are to be streamed and the stage is not, they are copied from the stage, which the nearest caches hold.
void ReduceShare(Steps& steps, const Reduction& what, const Ranges& ranges, const StreamPlan& plan, size_t c,
                 Stores stores) {
  LocalView& view = steps.view();
  const int n = steps.n(), me = steps.me(), which = static_cast<int>(c % LocalView::kStages);
  const Part share = ShareOf(plan, ranges.total(), c, me);
  const size_t chunk = c * plan.chunk_bytes;
  ranges.ForEach(share.begin, share.end, [&](const std::byte* in, std::byte* out, size_t bytes, size_t at) {
    PointerList<const void*> srcs(n);
    for (int m = 0; m < n; ++m) srcs[m] = m == me ? in : view.stage(m, which) + (at - chunk);
    void* const dsts[] = {view.stage(ResultStage(n, me, 1 - me), which) + (at - chunk), out};
    const bool apart =
        stores.shared == StoreMode::kOrdinary && ResultStores(in, out, stores.results) == StoreMode::kStreaming;
    kernels::Reduce({what.dtype, what.op, what.factors, srcs.data(), n, dsts, apart ? 1 : 2, bytes / SizeOf(what.dtype),
                     stores.shared});
    if (apart) kernels::Copy(out, dsts[0], bytes, StoreMode::kStreaming);
  });
}

void CopyOut(Steps& steps, const Ranges& ranges, const StreamPlan& plan, size_t c, StoreMode results) {
  for (int m = 0; m < steps.n(); ++m) {
    if (m == steps.me()) continue;
    const Part share = ShareOf(plan, ranges.total(), c, m);
    const std::byte* stage =
        steps.view().stage(ResultStage(steps.n(), m, steps.me()), static_cast<int>(c % LocalView::kStages));
    ranges.Scatter(share.begin, share.end, stage + (share.begin - c * plan.chunk_bytes), results);
  }
}

}  // namespace

StreamPlan::StreamPlan(size_t total, int n) {
  const size_t unit = kShareAlign * n, limit = std::max(unit, ChunkLimit(total, n) / unit * unit);
  chunks = std::max<size_t>(1, (total + limit - 1) / limit);
  chunk_bytes = RoundUpTo(std::max<size_t>(1, (total + chunks - 1) / chunks), unit);
  share_bytes = chunk_bytes / n;
}

// The shares of the others into the own stage.
void StageChunk(Steps& steps, const Ranges& ranges, const StreamPlan& plan, size_t c, StoreMode mode) {
  std::byte* stage = steps.view().stage(steps.me(), static_cast<int>(c % LocalView::kStages));
  for (int m = 0; m < steps.n(); ++m) {
    if (m == steps.me()) continue;
    const Part share = ShareOf(plan, ranges.total(), c, m);
    ranges.Gather(share.begin, share.end, stage + (share.begin - c * plan.chunk_bytes), mode);
  }
}

// Steps after the staging of chunk 0: per chunk c, R(c) = 2c + 1 (own share combined) and I(c + 1) = 2c + 2 (next chunk
// staged). Order per rank: combine c, stage c + 1, copy out c. So the waits for the others' shares of c and for their
// staging of c + 1 both have a copy's time of slack. Invariants, stage s = c % 2:
//   - staging c + 2 stores the others' shares of s, which the others have read to combine chunk c: this rank awaited
//   their R(c) to copy it out;
//   - combining c + 2 stores the own share of s, in the own stage or the reader's (ResultStage), which the others read
//   to copy out chunk c:
//     they do so before they publish R(c + 1), which this rank has awaited before it copied out chunk c + 1;
//   - with two members, staging c + 2 stores what this rank itself has read to copy out chunk c, and the other combines
//   it after I(c + 2);
//   - an input that is also the output is staged before it is overwritten: the copy-out of c follows the staging of c.
Task StreamReduce(Steps& steps, const Reduction& what, const Ranges& ranges, bool staged, Stores stores, Flow* flow) {
  LocalView& view = steps.view();
  const StreamPlan plan(ranges.total(), steps.n());
  if (plan.chunks >= LocalView::kFinalStep / 4) co_return TooManySteps();
  if (!staged) {
    StageChunk(steps, ranges, plan, 0, stores.shared);
    steps.Take(1);
    view.Publish(steps.taken());
    HVD_CO_TRY(co_await view.AllReached(steps.taken()));
  }
  const uint32_t base = steps.taken();
  for (size_t c = 0; c < plan.chunks; ++c) {
    const uint32_t step = base + static_cast<uint32_t>(2 * c);
    HVD_CO_TRY(co_await view.AllReached(step));  // I(c)
    ReduceShare(steps, what, ranges, plan, c, stores);
    view.Publish(step + 1);
    if (c + 1 < plan.chunks) {
      if (flow != nullptr) HVD_CO_TRY(co_await flow->Arrived((c + 2) * plan.chunk_bytes));
      StageChunk(steps, ranges, plan, c + 1, stores.shared);
      view.Publish(step + 2);
    }
    HVD_CO_TRY(co_await view.AllReached(step + 1));  // R(c)
    CopyOut(steps, ranges, plan, c, stores.results);
    if (flow != nullptr) HVD_CO_TRY(flow->Left(std::min(ranges.total(), (c + 1) * plan.chunk_bytes)));
    if (steps.Tired(2 * plan.chunk_bytes)) co_await Yield();
  }
  steps.Take(static_cast<uint32_t>(2 * plan.chunks - 1));
  co_return Status();
}

}  // namespace hvd::collective::shm
