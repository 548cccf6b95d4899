// Broadcast over shared memory; see collectives.h.
#include <algorithm>

#include "collective/flow.h"
#include "collective/shm/collectives.h"
#include "collective/shm/steps.h"

namespace hvd::collective::shm {
namespace {

Ranges RangesOf(const Batch& batch) {
  Ranges ranges;
  for (const Tensor& t : batch.tensors) ranges.Add(t.input, t.output, t.elems * SizeOf(batch.dtype));
  return ranges;
}

// The pieces of a broadcast: small ones for small batches, so that the copies in and out overlap.
class Pieces {
 public:
  explicit Pieces(size_t total)
      : total_(total), bytes_(std::clamp(((total + 7) / 8 + kPage - 1) / kPage * kPage, kSmallest, kPieceBytes)) {}
  size_t count() const { return (total_ + bytes_ - 1) / bytes_; }
  size_t begin(size_t c) const { return c * bytes_; }
  size_t end(size_t c) const { return std::min(total_, (c + 1) * bytes_); }
  size_t slots() const { return kStageBytes / bytes_; }
  size_t offset(size_t c) const { return c % slots() * bytes_; }  // in the stages, which are one piece of memory

 private:
  static constexpr size_t kPage = 4096, kSmallest = 32 << 10,
                          kStageBytes = LocalView::kStages * LocalView::stage_bytes();
  size_t total_, bytes_;
};

// Step c + 1 of the root: piece c is filled. Step 1 of another: it has come; step c + 2: piece c is drained.
// Invariant: the root fills the memory of piece c again only when all others have drained it.
// The root alone knows how it stores, but only the others feel it: in a batch that is measured it waits for them.
Task SendPieces(const Group& group, Steps& steps, const Ranges& ranges, const Pieces& pieces, Flow* flow) {
  LocalView& view = steps.view();
  StoreTrial trial(group, StoreChooser::Use::kBroadcast, ranges.total());
  HVD_CO_TRY(co_await AcquireStages(steps));
  if (trial.is_measured()) HVD_CO_TRY(co_await view.AllReached(1));
  trial.Start();
  for (size_t c = 0; c < pieces.count(); ++c) {
    if (flow != nullptr) HVD_CO_TRY(co_await flow->Arrived(pieces.end(c)));
    if (c >= pieces.slots()) HVD_CO_TRY(co_await view.AllReached(static_cast<uint32_t>(c - pieces.slots() + 2)));
    ranges.Gather(pieces.begin(c), pieces.end(c), view.stage(steps.me(), 0) + pieces.offset(c), trial.mode());
    view.Publish(static_cast<uint32_t>(c + 1));
    if (steps.Tired(pieces.end(c) - pieces.begin(c))) co_await Yield();
  }
  if (trial.is_measured()) HVD_CO_TRY(co_await view.AllReached(static_cast<uint32_t>(pieces.count() + 1)));
  trial.Stop();
  co_return Status();
}

Task ReceivePieces(Steps& steps, const Ranges& ranges, const Pieces& pieces, int root, Flow* flow) {
  LocalView& view = steps.view();
  view.Publish(1);
  for (size_t c = 0; c < pieces.count(); ++c) {
    HVD_CO_TRY(co_await view.Reached(root, static_cast<uint32_t>(c + 1)));
    ranges.Scatter(pieces.begin(c), pieces.end(c), view.stage(root, 0) + pieces.offset(c));
    view.Publish(static_cast<uint32_t>(c + 2));
    if (flow != nullptr) HVD_CO_TRY(flow->Left(pieces.end(c)));
    if (steps.Tired(pieces.end(c) - pieces.begin(c))) co_await Yield();
  }
  co_return Status();
}

// One-sided: the root goes on as soon as its data lies in its small buffer.
Task SmallBroadcast(const Batch& batch, Steps& steps, const Ranges& ranges) {
  LocalView& view = steps.view();
  const int which = steps.small_buffer(0);
  if (steps.me() == batch.root) {
    if (batch.flow != nullptr) HVD_CO_TRY(co_await batch.flow->Arrived(ranges.total()));
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
  const Pieces pieces(ranges.total());
  if (pieces.count() >= LocalView::kFinalStep / 2) co_return TooManySteps();
  const bool root = steps.me() == batch.root;
  if (ranges.total() <= LocalView::small_bytes()) {
    HVD_CO_TRY(co_await SmallBroadcast(batch, steps, ranges));
  } else if (root) {
    HVD_CO_TRY(co_await SendPieces(group, steps, ranges, pieces, batch.flow));
  } else {
    HVD_CO_TRY(co_await ReceivePieces(steps, ranges, pieces, batch.root, batch.flow));
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
