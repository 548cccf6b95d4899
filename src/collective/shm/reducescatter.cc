// Reducescatter over shared memory; see collectives.h.
#include <algorithm>

#include "collective/shm/collectives.h"
#include "collective/shm/lanes.h"
#include "collective/shm/steps.h"

namespace hvd::collective::shm {
namespace {

struct Blocks {
  std::vector<Ranges>
      of_member;  // the own inputs by the member whose block they are; the outputs matter for the own block only
  size_t longest = 0, total = 0;
};

Result<Blocks> Allocate(Batch& batch, int n, int me) {
  Blocks blocks;
  blocks.of_member.resize(n);
  for (Tensor& t : batch.tensors) {
    const size_t rows = t.shape.empty() ? 1 : static_cast<size_t>(t.shape[0]),
                 row_bytes = t.row_elems * SizeOf(batch.dtype);
    const size_t bytes = BlockOfMember(rows, n, me).count * row_bytes;
    HVD_TRY(t.PlaceResult(bytes));
    for (int m = 0; m < n; ++m) {
      const RowBlock block = BlockOfMember(rows, n, m);
      blocks.of_member[m].Add(t.input + block.first * row_bytes, t.output, block.count * row_bytes);
    }
  }
  for (const Ranges& r : blocks.of_member) {
    blocks.longest = std::max(blocks.longest, r.total());
    blocks.total += r.total();
  }
  return blocks;
}

// Combines [from, to) of the own block: source m is at others(m), this rank's own is the input.
template <class F>
void ReduceBlock(const Batch& batch, const Ranges& block, Steps& steps, size_t from, size_t to, F others) {
  block.ForEach(from, to, [&](const std::byte* in, std::byte* out, size_t bytes, size_t at) {
    PointerList<const void*> srcs(steps.n());
    for (int m = 0; m < steps.n(); ++m) srcs[m] = m == steps.me() ? in : others(m) + (at - from);
    void* dst = out;
    kernels::Reduce({batch.dtype,
                     batch.op,
                     {batch.prescale, batch.postscale},
                     srcs.data(),
                     steps.n(),
                     &dst,
                     1,
                     bytes / SizeOf(batch.dtype)});
  });
}

// All in the small buffers: the blocks of all members one after the other (the own one is left out, but keeps its
// place).
Task SmallReducescatter(const Batch& batch, Steps& steps, const Blocks& blocks) {
  LocalView& view = steps.view();
  const int which = steps.small_buffer(0), me = steps.me();
  co_await view.Acquire(LocalView::Buffer::kSmall, which);
  size_t at = 0, mine = 0;
  for (int m = 0; m < steps.n(); ++m) {
    const Ranges& block = blocks.of_member[m];
    if (m == me) {
      mine = at;
    } else {
      block.Gather(0, block.total(), view.small(me, which) + at, StoreMode::kOrdinary);
    }
    at += block.total();
  }
  view.Publish(1);
  HVD_CO_TRY(co_await view.AllReached(1));
  ReduceBlock(batch, blocks.of_member[me], steps, 0, blocks.of_member[me].total(),
              [&](int m) { return view.small(m, which) + mine; });
  co_return Status();
}

}  // namespace

Task Reducescatter(const Group& group, Batch& batch) {
  Steps steps(group, batch.seq);
  LocalView& view = steps.view();
  const int n = steps.n(), me = steps.me();
  const Result<Blocks> allocated = Allocate(batch, n, me);
  if (!allocated.ok()) co_return allocated.status();
  const Blocks& blocks = *allocated;
  const Lanes lanes(n);
  if (blocks.total <= LocalView::small_bytes()) {
    HVD_CO_TRY(co_await SmallReducescatter(batch, steps, blocks));
  } else {
    StoreTrial trial(group, StoreChooser::Use::kReducescatter, blocks.total);
    const StoreMode mode = trial.mode();
    trial.Start();
    const auto fill = [&](size_t c, std::byte* piece) {
      for (int m = 0; m < n; ++m) {
        const Ranges& block = blocks.of_member[m];
        if (m != me)
          block.Gather(lanes.begin(block.total(), c), lanes.end(block.total(), c), piece + lanes.offset(me, m), mode);
      }
    };
    const auto drain = [&](size_t c) {
      const Ranges& block = blocks.of_member[me];
      ReduceBlock(batch, block, steps, lanes.begin(block.total(), c), lanes.end(block.total(), c),
                  [&](int m) { return PieceOf(view, m, c) + lanes.offset(m, me); });
    };
    HVD_CO_TRY(co_await StreamPieces(steps, lanes.rounds(blocks.longest), 2 * kPieceBytes, fill, drain));
    trial.Stop();
  }
  view.Finish();
  co_return Status();
}

}  // namespace hvd::collective::shm
