#include "engine/wake/spread.h"

#include <sched.h>

#include <new>

namespace hvd::engine {

int BetterCore(const std::vector<int>& on, int me, const CoreSet& allowed) {
  const auto ranks_on = [&on](int core) { return std::count(on.begin(), on.end(), core); };
  if (std::find(on.begin() + me + 1, on.end(), on[me]) != on.end()) return -1;
  const auto emptiest =
      std::min_element(allowed.begin(), allowed.end(), [&](int a, int b) { return ranks_on(a) < ranks_on(b); });
  return emptiest != allowed.end() && ranks_on(*emptiest) + 2 <= ranks_on(on[me]) ? *emptiest : -1;
}

void Spread::BeforeWait() {
  const int me = n_->self(), core = sched_getcpu();
  if (core < 0) return;
  if (core != on_[me]) n_->own().words().core.store(on_[me] = core, std::memory_order_relaxed);
  if (++waits_ % kWaitsPerLook != 0 || !patience_.Looks()) return;
  const int better = Better(core);
  if (patience_.Saw(better >= 0)) MoveThread(better);
}

// -1: there is none, or no memory to find out. What is known of the allowed cores may be old: MoveThread knows better.
int Spread::Better(int core) {
  for (int i = 0; i < n_->size(); ++i) on_[i] = n_->arena(i).words().core.load(std::memory_order_relaxed);
  if (std::count(on_.begin(), on_.end(), core) < 2) return -1;
  try {
    if (looks_++ % kLooksPerQuestion == 0) allowed_ = CoresOfThread();
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return BetterCore(on_, n_->self(), allowed_);
}

}  // namespace hvd::engine
