// Allreduce of tensors that live in shared memory: no buffer between; see collectives.h.
#include <algorithm>

#include "collective/shm/allreduce.h"

namespace hvd::collective::shm {
namespace {
// Between two looks at the driver's other duties.
constexpr size_t kStretchBytes = 256 << 10;
}  // namespace

// Steps: 1 more, published when the own shares are done. The caller has awaited the exchange of offsets, which says
// that all tensors are ready, and awaits the last step of all members before it calls the tensors done. Invariant:
// every byte is read and stored by exactly one rank, the owner of its share; so it does not matter which outputs are
// inputs. A member that gives up takes its tensors away while others read them: a reader may then not publish.
Task ResidentReduce(Steps& steps, const Reduction& what, const std::vector<ResidentTensor>& tensors, StoreMode mode) {
  const int n = steps.n();
  size_t total = 0, first = 0;
  for (const ResidentTensor& t : tensors) total += t.bytes;
  // The tensors end to end; shares begin on multiples of a cache line of the whole, so a line of a tensor may be stored
  // by two ranks only where tensors meet.
  const size_t share = RoundUpTo((total + n - 1) / n, kShareAlign);
  const size_t begin = std::min(total, share * steps.me()), end = std::min(total, begin + share);
  for (const ResidentTensor& t : tensors) {
    const size_t from = std::clamp(begin, first, first + t.bytes) - first,
                 to = std::clamp(end, first, first + t.bytes) - first;
    first += t.bytes;
    for (size_t at = from; at < to; at += kStretchBytes) {
      const size_t bytes = std::min(kStretchBytes, to - at);
      {
        PointerList<const void*> srcs(n);
        PointerList<void*> dsts(n);
        for (int m = 0; m < n; ++m) {
          srcs[m] = t.inputs[m] + at;
          dsts[m] = t.outputs[m] + at;
        }
        kernels::Reduce(
            {what.dtype, what.op, what.factors, srcs.data(), n, dsts.data(), n, bytes / SizeOf(what.dtype), mode});
      }
      if (steps.Tired(bytes * n)) co_await Yield();
    }
  }
  steps.Take(1);
  HVD_CO_TRY(steps.view().NobodyGaveUp());
  steps.view().Publish(steps.taken());
  co_return Status();
}

}  // namespace hvd::collective::shm
