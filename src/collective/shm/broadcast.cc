// Broadcast over shared memory; see collectives.h.
#include <algorithm>

#include "collective/shm/collectives.h"
#include "collective/shm/steps.h"

namespace hvd::collective::shm {
namespace {

Ranges RangesOf(const Batch& batch) {
  Ranges ranges;
  for (const Tensor& t : batch.tensors) ranges.Add(t.input, t.output, t.elems * SizeOf(batch.dtype));
  return ranges;
}

// Step c + 1 of the root: piece c is filled. Step c + 1 of another: piece c is drained.
// Invariant: the root fills the memory of piece c again only when all others have drained it.
Task SendPieces(const Group& group, Steps& steps, const Ranges& ranges) {
  LocalView& view = steps.view();
  const StoreMode mode = UnmeasuredStores(group, ranges.total());
  size_t c = 0;
  for (size_t at = 0; at < ranges.total(); at += kPieceBytes, ++c) {
    const int which = static_cast<int>(c % kPieces / (kPieces / LocalView::kStages));
    if (steps.FirstUse(LocalView::Buffer::kStage, which)) co_await view.Acquire(LocalView::Buffer::kStage, which);
    if (c >= kPieces) HVD_CO_TRY(co_await view.AllReached(static_cast<uint32_t>(c - kPieces + 1)));
    const size_t end = std::min(ranges.total(), at + kPieceBytes);
    ranges.Gather(at, end, PieceOf(view, steps.me(), c), mode);
    view.Publish(static_cast<uint32_t>(c + 1));
    if (steps.Tired(end - at)) co_await Yield();
  }
  co_return Status();
}

Task ReceivePieces(Steps& steps, const Ranges& ranges, int root) {
  LocalView& view = steps.view();
  size_t c = 0;
  for (size_t at = 0; at < ranges.total(); at += kPieceBytes, ++c) {
    HVD_CO_TRY(co_await view.Reached(root, static_cast<uint32_t>(c + 1)));
    const size_t end = std::min(ranges.total(), at + kPieceBytes);
    ranges.Scatter(at, end, PieceOf(view, root, c));
    view.Publish(static_cast<uint32_t>(c + 1));
    if (steps.Tired(end - at)) co_await Yield();
  }
  co_return Status();
}

// One-sided: the root goes on as soon as its data lies in its small buffer.
Task SmallBroadcast(const Batch& batch, Steps& steps, const Ranges& ranges) {
  LocalView& view = steps.view();
  const int which = steps.small_buffer(0);
  if (steps.me() == batch.root) {
    co_await view.Acquire(LocalView::Buffer::kSmall, which);
    ranges.Gather(0, ranges.total(), view.small(steps.me(), which), StoreMode::kOrdinary);
    view.Publish(1);
    co_return Status();
  }
  HVD_CO_TRY(co_await view.Reached(batch.root, 1));
  ranges.Scatter(0, ranges.total(), view.small(batch.root, which));
  co_return Status();
}

}  // namespace

Task Broadcast(const Group& group, Batch& batch) {
  Steps steps(group, batch.seq);
  const Ranges ranges = RangesOf(batch);
  if (ranges.total() / kPieceBytes >= LocalView::kFinalStep / 2) co_return TooManySteps();
  const bool root = steps.me() == batch.root;
  if (ranges.total() <= LocalView::small_bytes()) {
    HVD_CO_TRY(co_await SmallBroadcast(batch, steps, ranges));
  } else if (root) {
    HVD_CO_TRY(co_await SendPieces(group, steps, ranges));
  } else {
    HVD_CO_TRY(co_await ReceivePieces(steps, ranges, batch.root));
  }
  if (root) {
    for (const Tensor& t : batch.tensors) {
      if (t.output != t.input) kernels::Copy(t.output, t.input, t.elems * SizeOf(batch.dtype));
    }
  }
  steps.view().Finish();
  co_return Status();
}

}  // namespace hvd::collective::shm
