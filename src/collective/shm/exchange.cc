// Barrier, the exchange of small blobs over shared memory and what else is the same in several collectives; see
// collectives.h and steps.h.
#include <algorithm>
#include <cstring>

#include "collective/shm/collectives.h"
#include "collective/shm/steps.h"

namespace hvd::collective::shm {

Task AcquireStages(Steps& steps) {
  for (int which = 0; which < LocalView::kStages; ++which) {
    if (steps.FirstUse(LocalView::Buffer::kStage, which))
      co_await steps.view().Acquire(LocalView::Buffer::kStage, which);
  }
  co_return Status();
}

// Steps: one per 64 KB. Invariant: part i of the batch goes through small buffer (seq + i) % 2 and is read before its
// reader publishes the step of part i + 1, which the owner awaits before it stores part i + 2 there.
Task ExchangeBlobs(Steps& steps, const std::byte* mine, size_t bytes, std::byte* all) {
  LocalView& view = steps.view();
  for (size_t at = 0; at < bytes; at += LocalView::small_bytes()) {
    const size_t part = std::min(bytes - at, LocalView::small_bytes());
    const int which = steps.NextSmallBuffer();
    if (steps.FirstUse(LocalView::Buffer::kSmall, which)) co_await view.Acquire(LocalView::Buffer::kSmall, which);
    std::memcpy(view.small(steps.me(), which), mine + at, part);
    steps.Take(1);
    view.Publish(steps.taken());
    HVD_CO_TRY(co_await view.AllReached(steps.taken()));
    for (int m = 0; m < steps.n(); ++m) std::memcpy(all + m * bytes + at, view.small(m, which), part);
    if (steps.Tired(part * steps.n())) co_await Yield();
  }
  co_return Status();
}

Task ExchangeHeaders(Steps& steps, const std::byte* mine, size_t bytes, const Ranges& data, std::byte* all) {
  if (bytes > LocalView::small_bytes() / 2) co_return co_await ExchangeBlobs(steps, mine, bytes, all);
  LocalView& view = steps.view();
  const int which = steps.NextSmallBuffer();
  if (steps.FirstUse(LocalView::Buffer::kSmall, which)) co_await view.Acquire(LocalView::Buffer::kSmall, which);
  std::byte* small = view.small(steps.me(), which);
  std::memcpy(small, mine, bytes);
  if (TravelsInline(bytes, data.total())) data.Gather(0, data.total(), small + bytes, StoreMode::kOrdinary);
  steps.Take(1);
  view.Publish(steps.taken());
  HVD_CO_TRY(co_await view.AllReached(steps.taken()));
  for (int m = 0; m < steps.n(); ++m) std::memcpy(all + m * bytes, view.small(m, which), bytes);
  co_return Status();
}

Task Exchange(const Group& group, uint64_t seq, const void* mine, size_t bytes, void* all) {
  Steps steps(group, seq);
  HVD_CO_TRY(co_await ExchangeBlobs(steps, static_cast<const std::byte*>(mine), bytes, static_cast<std::byte*>(all)));
  steps.view().Finish();
  co_return Status();
}

Task Barrier(const Group& group, Batch& batch) {
  LocalView& view = *group.local;
  view.Begin(batch.seq);
  view.Publish(1);
  HVD_CO_TRY(co_await view.AllReached(1));
  view.Finish();
  co_return Status();
}

}  // namespace hvd::collective::shm
