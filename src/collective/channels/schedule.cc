#include "collective/channels/schedule.h"

#include <algorithm>

namespace hvd::collective::channels {
namespace {

// A message between two ranks, and a byte of it: what a process-to-process loopback connection takes. Only the ratio
// (about 70 KB) matters for the choices below; it is of the same order on 10-100 Gb/s networks.
constexpr uint64_t kMessageNs = 25'000;
constexpr uint64_t kPsPerByte = 350;
// From this many bytes per chunk on the ring's extra steps no longer count, and its neighbour-only traffic wins
// (Patarasuk and Yuan 2009).
constexpr size_t kRingChunkBytes = 64 << 10;

int FloorLog2(int n) {
  int log = 0;
  while ((2 << log) <= n) ++log;
  return log;
}
int CeilLog2(int n) { return FloorLog2(n) + ((1 << FloorLog2(n)) < n ? 1 : 0); }

// Where a range stands in a list of operations: [first, first + count).
struct Placed {
  uint32_t first = 0, count = 0;
  uint32_t end() const { return first + count; }
};

class Builder {
 public:
  explicit Builder(const Shape& s) : segment_(std::max<size_t>(1, s.segment_units)) {}

  // Waits for nothing, for everything received so far, or segment by segment for the same range in `arrived`.
  Placed Send(int to, uint32_t step, Range r, Where own) { return SendAfter(to, step, r, own, 0, false); }
  Placed SendAfterAll(int to, uint32_t step, Range r, Where own) {
    return SendAfter(to, step, r, own, static_cast<uint32_t>(plan_.receives.size()), false);
  }
  Placed Forward(int to, uint32_t step, Range r, const Placed& arrived) {
    return SendAfter(to, step, r, Where::kOutput, arrived.first, true);
  }
  Placed Store(int from, uint32_t step, Range r) {
    Transfer t;
    t.peer = from, t.step = step;
    return Cut(&plan_.receives, t, r);
  }
  // `sent`: the combination of segment k waits for the end of send k of these (they read what it overwrites).
  Placed Combine(int from, uint32_t step, Range r, Where own, Action action, bool last, const Placed& sent = {}) {
    Transfer t;
    t.peer = from, t.step = step, t.own = own, t.action = action, t.last = last;
    const Placed placed = Cut(&plan_.receives, t, r);
    for (uint32_t k = 0; k < std::min(placed.count, sent.count); ++k)
      plan_.receives[placed.first + k].after = sent.first + k + 1;
    return placed;
  }
  Plan Take() { return std::move(plan_); }

 private:
  Placed SendAfter(int to, uint32_t step, Range r, Where own, uint32_t after, bool by_segment) {
    Transfer t;
    t.peer = to, t.step = step, t.own = own, t.after = after;
    const Placed placed = Cut(&plan_.sends, t, r);
    if (by_segment) {
      for (uint32_t k = 0; k < placed.count; ++k) plan_.sends[placed.first + k].after = after + k + 1;
    }
    return placed;
  }
  Placed Cut(std::vector<Transfer>* list, Transfer t, Range r) {
    Placed placed{static_cast<uint32_t>(list->size()), 0};
    for (size_t at = r.begin; at < r.end; at += segment_) {
      t.range = {at, std::min(r.end, at + segment_)};
      t.segment = placed.count++;
      list->push_back(t);
    }
    return placed;
  }

  size_t segment_;
  Plan plan_;
};

// The members that a power-of-two algorithm leaves over: of the first 2 * extra positions, each even one hands its
// vector to the odd one behind it and gets the result from there. `place`: among the 2^log that go on, or -1.
struct Fold {
  explicit Fold(const Shape& s) : log(FloorLog2(s.n)), extra(s.n - (1 << FloorLog2(s.n))) {
    place = s.me >= 2 * extra ? s.me - extra : s.me % 2 == 1 ? s.me / 2 : -1;
  }
  int position(int at) const { return at < extra ? 2 * at + 1 : at + extra; }
  bool takes_in(int me) const { return me < 2 * extra && me % 2 == 1; }
  int log, extra, place;
};

constexpr uint32_t kFoldStep = 0, kUnfoldStep = 1'000'000;

// Returns false when this member only hands over and waits for the result.
bool FoldIn(Builder* b, const Shape& s, const Fold& fold, Where* own) {
  const Range all{0, s.units};
  if (fold.place < 0) {
    b->Send(s.me + 1, kFoldStep, all, Where::kInput);
    b->Store(s.me + 1, kUnfoldStep, all);
    return false;
  }
  if (fold.takes_in(s.me)) {
    b->Combine(s.me - 1, kFoldStep, all, Where::kInput, Action::kOwnLast, false);
    *own = Where::kOutput;
  }
  return true;
}

}  // namespace

Range PartOf(size_t units, int n, int i) {
  const size_t base = units / n, more = units % n, at = static_cast<size_t>(i);
  const size_t begin = at * base + std::min(at, more);
  return {begin, begin + base + (at < more ? 1 : 0)};
}

Plan AllreduceDoubling(const Shape& s) {
  Builder b(s);
  const Fold fold(s);
  const Range all{0, s.units};
  Where own = Where::kInput;
  if (!FoldIn(&b, s, fold, &own)) return b.Take();
  for (int k = 0; k < fold.log; ++k) {
    const int mate = fold.place ^ (1 << k), peer = fold.position(mate);
    const Placed sent = b.SendAfterAll(peer, k + 1, all, own);
    b.Combine(peer, k + 1, all, own, fold.place < mate ? Action::kOwnFirst : Action::kOwnLast, k == fold.log - 1, sent);
    own = Where::kOutput;
  }
  if (fold.takes_in(s.me)) b.SendAfterAll(s.me - 1, kUnfoldStep, all, Where::kOutput);
  return b.Take();
}

// Invariant: after step k the own range holds the combination of the 2^(k+1) places that agree with this one but in the
// lowest k+1 bits.
Plan AllreduceHalving(const Shape& s) {
  Builder b(s);
  const Fold fold(s);
  Where own = Where::kInput;
  if (!FoldIn(&b, s, fold, &own)) return b.Take();
  std::vector<Range> theirs(fold.log);  // what the mate of step k keeps
  Range mine{0, s.units};
  uint32_t step = 1;
  for (int k = 0; k < fold.log; ++k, ++step) {
    const int mate = fold.place ^ (1 << k), peer = fold.position(mate);
    const size_t middle = mine.begin + mine.size() / 2;
    const Range low{mine.begin, middle}, high{middle, mine.end};
    const bool lower = fold.place < mate;
    mine = lower ? low : high;
    theirs[k] = lower ? high : low;
    b.SendAfterAll(peer, step, theirs[k], own);
    b.Combine(peer, step, mine, own, lower ? Action::kOwnFirst : Action::kOwnLast, k == fold.log - 1);
    own = Where::kOutput;
  }
  for (int k = fold.log - 1; k >= 0; --k, ++step) {
    const int peer = fold.position(fold.place ^ (1 << k));
    b.SendAfterAll(peer, step, mine, Where::kOutput);
    b.Store(peer, step, theirs[k]);
    mine = {std::min(mine.begin, theirs[k].begin), std::max(mine.end, theirs[k].end)};
  }
  if (fold.takes_in(s.me)) b.SendAfterAll(s.me - 1, kUnfoldStep, {0, s.units}, Where::kOutput);
  return b.Take();
}

// Invariant: in step k of the first half the chunk that leaves holds the combination of k+1 consecutive positions. A
// chunk is overwritten by its final value only when everything this member once sent of it has arrived, because the
// final value contains it.
Plan AllreduceRing(const Shape& s) {
  Builder b(s);
  const int n = s.n, next = (s.me + 1) % n, previous = (s.me + n - 1) % n;
  const auto chunk = [&](int i) { return PartOf(s.units, n, ((i % n) + n) % n); };
  Placed arrived;
  uint32_t step = 0;
  for (int k = 0; k < n - 1; ++k, ++step) {
    if (k == 0) {
      b.Send(next, step, chunk(s.me), Where::kInput);
    } else {
      b.Forward(next, step, chunk(s.me - k), arrived);
    }
    arrived = b.Combine(previous, step, chunk(s.me - k - 1), Where::kInput, Action::kOwnLast, k == n - 2);
  }
  for (int k = 0; k < n - 1; ++k, ++step) {
    b.Forward(next, step, chunk(s.me + 1 - k), arrived);
    arrived = b.Store(previous, step, chunk(s.me - k));
  }
  return b.Take();
}

AllreducePlan ChooseAllreduce(int n, size_t bytes, int flows) {
  if (bytes / n >= kRingChunkBytes) return AllreducePlan::kRing;
  const uint64_t log = FloorLog2(n), power = uint64_t{1} << log;
  const uint64_t fold = power == static_cast<uint64_t>(n) ? 0 : 2;
  const uint64_t vector_ns = bytes * kPsPerByte / 1000 * static_cast<uint64_t>(flows);
  const uint64_t doubling = (log + fold) * (kMessageNs + vector_ns);
  const uint64_t halving = (2 * log + fold) * kMessageNs + fold * vector_ns + 2 * vector_ns * (power - 1) / power;
  const uint64_t ring = uint64_t{2} * (n - 1) * kMessageNs + 2 * vector_ns * (n - 1) / n;
  if (doubling <= halving && doubling <= ring) return AllreducePlan::kDoubling;
  return halving <= ring ? AllreducePlan::kHalving : AllreducePlan::kRing;
}

Plan PlanAllreduce(const Shape& s, size_t unit_bytes, int flows) {
  switch (ChooseAllreduce(s.n, s.units * unit_bytes, flows)) {
    case AllreducePlan::kDoubling:
      return AllreduceDoubling(s);
    case AllreducePlan::kHalving:
      return AllreduceHalving(s);
    case AllreducePlan::kRing:
      break;
  }
  return AllreduceRing(s);
}

Plan AllgatherRing(const Shape& s, const std::vector<size_t>& starts) {
  Builder b(s);
  const int n = s.n, next = (s.me + 1) % n, previous = (s.me + n - 1) % n;
  const auto block = [&](int rotated) { return Range{starts[rotated % n], starts[rotated % n + 1]}; };
  Placed arrived;
  for (int k = 0; k < n - 1; ++k) {
    if (k == 0) {
      b.Send(next, k, block(0), Where::kOutput);
    } else {
      b.Forward(next, k, block(n - k), arrived);
    }
    arrived = b.Store(previous, k, block(n - 1 - k));
  }
  return b.Take();
}

// Invariant: after the step with distance d this member holds the blocks of the next 2d positions (at most all).
Plan AllgatherBruck(const Shape& s, const std::vector<size_t>& starts) {
  Builder b(s);
  uint32_t step = 0;
  for (int d = 1; d < s.n; d *= 2, ++step) {
    const int count = std::min(d, s.n - d);
    b.SendAfterAll((s.me + s.n - d) % s.n, step, {starts[0], starts[count]}, Where::kOutput);
    b.Store((s.me + d) % s.n, step, {starts[d], starts[d + count]});
  }
  return b.Take();
}

Plan PlanAllgather(const Shape& s, const std::vector<size_t>& starts) {
  return starts.back() <= kBruckBytes ? AllgatherBruck(s, starts) : AllgatherRing(s, starts);
}

// Invariant: the member at relative position v, once it has the vector, sends it to v + 2^j for every 2^j below v's
// lowest bit; largest subtree first.
Plan BroadcastTree(const Shape& s, int root) {
  Builder b(s);
  const int v = (s.me - root + s.n) % s.n;
  int low = 1;
  while (low < s.n && (v & low) == 0) low *= 2;
  const Range all{0, s.units};
  const auto step_of = [&](int distance) { return static_cast<uint32_t>(CeilLog2(s.n) - FloorLog2(distance)); };
  Placed arrived;
  if (v != 0) arrived = b.Store((v - low + root) % s.n, step_of(low), all);
  for (int d = low / 2; d >= 1; d /= 2) {
    if (v + d >= s.n) continue;
    const int child = (v + d + root) % s.n;
    v == 0 ? b.Send(child, step_of(d), all, Where::kInput) : b.Forward(child, step_of(d), all, arrived);
  }
  return b.Take();
}

Plan BroadcastChain(const Shape& s, int root) {
  Builder b(s);
  const int v = (s.me - root + s.n) % s.n;
  const Range all{0, s.units};
  Placed arrived;
  if (v > 0) arrived = b.Store((s.me + s.n - 1) % s.n, v - 1, all);
  if (v < s.n - 1) {
    const int next = (s.me + 1) % s.n;
    v == 0 ? b.Send(next, v, all, Where::kInput) : b.Forward(next, v, all, arrived);
  }
  return b.Take();
}

// The last of a chain waits for n - 2 segments more than the vector has: with pieces of a 1/8n of it, for an eighth of
// its time. Smaller than this, a message costs more than its bytes.
Shape ChainShape(const Shape& s, size_t unit_bytes) {
  constexpr size_t kSmallest = 16 << 10;
  const size_t piece = s.units * unit_bytes / (8 * static_cast<size_t>(s.n));
  Shape chain = s;
  chain.segment_units = std::clamp(piece, kSmallest, kSegmentBytes) / unit_bytes;
  return chain;
}

Plan PlanBroadcast(const Shape& s, int root, size_t unit_bytes, int flows) {
  if (s.n <= 2) return BroadcastTree(s, root);
  const Shape chain = ChainShape(s, unit_bytes);
  const auto ns_of = [&](size_t units) {
    return units * unit_bytes * kPsPerByte / 1000 * static_cast<uint64_t>(flows);
  };
  const uint64_t by_tree = CeilLog2(s.n) * (kMessageNs + ns_of(s.units));
  const uint64_t by_chain = (s.n - 1) * kMessageNs + ns_of(s.units) +
                            static_cast<uint64_t>(s.n - 2) * ns_of(std::min(s.units, chain.segment_units));
  return by_tree <= by_chain ? BroadcastTree(s, root) : BroadcastChain(chain, root);
}

Plan PairwiseExchange(const Shape& s, const std::vector<Range>& sends, const std::vector<Range>& receives) {
  Builder b(s);
  for (int k = 1; k < s.n; ++k) {
    const int to = (s.me + k) % s.n, from = (s.me + s.n - k) % s.n;
    b.Send(to, k, sends[to], Where::kInput);
    b.Store(from, k, receives[from]);
  }
  return b.Take();
}

Plan PairwiseReduce(const Shape& s, const std::vector<Range>& sends) {
  Builder b(s);
  for (int k = 1; k < s.n; ++k) {
    const int to = (s.me + k) % s.n, from = (s.me + s.n - k) % s.n;
    b.Send(to, k, sends[to], Where::kInput);
    b.Combine(from, k, {0, sends[s.me].size()}, k == 1 ? Where::kInput : Where::kOutput, Action::kOwnFirst,
              k == s.n - 1);
  }
  return b.Take();
}

Plan SwapBytes(int peer, size_t send_bytes, size_t receive_bytes) {
  Builder b(ShapeOf(2, 0, 0, 1));
  b.Send(peer, 0, {0, send_bytes}, Where::kInput);
  b.Store(peer, 0, {0, receive_bytes});
  return b.Take();
}

// Invariant: after the step with distance d this member knows that the d*2 positions before it (itself included) have
// entered.
Plan Dissemination(const Shape& s) {
  Builder b(s);
  uint32_t step = 0;
  for (int d = 1; d < s.n; d *= 2, ++step) {
    b.SendAfterAll((s.me + d) % s.n, step, {0, 1}, Where::kInput);
    b.Store((s.me + s.n - d) % s.n, step, {0, 1});
  }
  return b.Take();
}

}  // namespace hvd::collective::channels
