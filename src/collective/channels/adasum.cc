#include "collective/channels/adasum.h"

#include <algorithm>
#include <bit>
#include <string>

#include "collective/channels/own.h"
#include "collective/channels/plan_run.h"
#include "collective/kernels/kernels.h"
#include "collective/solo.h"

namespace hvd::collective::channels {
namespace {

constexpr size_t kTurnElems = 64 << 10;

// The part of one tensor that lies in the own range: what this member computes of it.
struct Share {
  size_t tensor;
  std::byte* own;     // in the output
  std::byte* theirs;  // in the receive buffer
  size_t elems;
};

class Adasum {
 public:
  Adasum(const Group& group, Batch& batch)
      : group_(group), batch_(batch), team_(TeamOf(group, Order::kByRank)), unit_(SizeOf(batch.dtype)) {
    for (const Tensor& t : batch.tensors) {
      starts_.push_back(elems_);
      elems_ += t.elems;
      output_.Add(t.output, t.elems * unit_);
    }
    starts_.push_back(elems_);
  }

  Task Run() {
    HVD_CO_TRY(co_await OwnToOutput());
    const Block buffer((elems_ + 1) / 2 * unit_);
    if (buffer.data == nullptr) {
      co_return Status(Code::kInternal, "adasum: no memory for " + std::to_string(buffer.bytes) + " bytes.");
    }
    theirs_ = buffer.data;
    Range mine{0, elems_};
    std::vector<Range> given;  // by level
    for (int k = 0; (1 << k) < team_.size(); ++k) {
      const size_t middle = mine.begin + (mine.size() + 1) / 2;
      const bool lower = (team_.index >> k & 1) == 0;
      given.push_back(lower ? Range{middle, mine.end} : Range{mine.begin, middle});
      mine = lower ? Range{mine.begin, middle} : Range{middle, mine.end};
      HVD_CO_TRY(co_await Exchange(k, given[k], mine));
      HVD_CO_TRY(co_await CombineLevel(k, mine, lower));
    }
    HVD_CO_TRY(co_await Postscale(mine));
    for (int k = static_cast<int>(given.size()) - 1; k >= 0; --k) {
      HVD_CO_TRY(co_await Return(k, mine, given[k]));
      mine = {std::min(mine.begin, given[k].begin), std::max(mine.end, given[k].end)};
    }
    co_return Status();
  }

 private:
  Task OwnToOutput() {
    HVD_CO_TRY(co_await PrescaleOwn(batch_));
    if (batch_.prescale != 1.0) co_return Status();
    for (const Tensor& t : batch_.tensors) HVD_CO_TRY(co_await CopyOwn(t.output, t.input, t.elems * unit_));
    co_return Status();
  }

  PlanRun::Work WorkOf(Phase phase, int k, Plan plan) const {
    PlanRun::Work work;
    work.plan = std::move(plan);
    work.seq = batch_.seq;
    work.phase = phase;
    work.round = static_cast<uint32_t>(k);
    return work;
  }
  Task Perform(PlanRun::Work work) {
    PlanRun run(team_, std::move(work), &group_.scratch, &batch_.waiting_for);
    co_return co_await run.Finish();
  }

  int Mate(int k) const { return team_.index ^ (1 << k); }

  // Half of the range goes to the mate of level k; the mate's vector of the other half arrives in the buffer.
  Task Exchange(int k, Range give, Range keep) {
    PlanRun::Work work = WorkOf(Phase::kData, k, SwapBytes(Mate(k), give.size() * unit_, keep.size() * unit_));
    AddRange(&work.input, give);
    work.output.Add(theirs_, keep.size() * unit_);
    return Perform(std::move(work));
  }
  // The finished range goes to the mate of level k, the mate's arrives in place.
  Task Return(int k, Range mine, Range theirs) {
    PlanRun::Work work = WorkOf(Phase::kGather, k, SwapBytes(Mate(k), mine.size() * unit_, theirs.size() * unit_));
    AddRange(&work.input, mine);
    AddRange(&work.output, theirs);
    return Perform(std::move(work));
  }
  void AddRange(Pieces* to, const Range& r) const {
    output_.Visit(r.begin * unit_, r.size() * unit_, [to](std::byte* data, size_t bytes) { to->Add(data, bytes); });
  }

  std::vector<Share> SharesOf(const Range& mine) const {
    std::vector<Share> shares;
    for (size_t i = 0; i + 1 < starts_.size(); ++i) {
      const size_t begin = std::max(mine.begin, starts_[i]), end = std::min(mine.end, starts_[i + 1]);
      if (begin >= end) continue;
      std::byte* own = batch_.tensors[i].output + (begin - starts_[i]) * unit_;
      shares.push_back({i, own, theirs_ + (begin - mine.begin) * unit_, end - begin});
    }
    return shares;
  }

  // a: the vector of the lower block of 2^k positions, b: that of the upper one, of which this member holds its own
  // range each.
  Task CombineLevel(int k, Range mine, bool own_is_a) {
    const std::vector<Share> shares = SharesOf(mine);
    std::vector<kernels::AdasumDots> dots(batch_.tensors.size());
    for (const Share& s : shares) {
      for (size_t at = 0; at < s.elems; at += kTurnElems) {
        const size_t n = std::min(kTurnElems, s.elems - at), skip = at * unit_;
        const std::byte *a = s.own + skip, *b = s.theirs + skip;
        if (!own_is_a) std::swap(a, b);
        const kernels::AdasumDots part = kernels::Dots(batch_.dtype, a, b, n);
        kernels::AdasumDots& sum = dots[s.tensor];
        sum.ab += part.ab, sum.aa += part.aa, sum.bb += part.bb;
        if (Tired(n)) co_await Yield();
      }
    }
    HVD_CO_TRY(co_await SumDots(k, &dots));
    for (const Share& s : shares) {
      for (size_t at = 0; at < s.elems; at += kTurnElems) {
        const size_t n = std::min(kTurnElems, s.elems - at), skip = at * unit_;
        const std::byte *a = s.own + skip, *b = s.theirs + skip;
        if (!own_is_a) std::swap(a, b);
        kernels::AdasumCombine(batch_.dtype, dots[s.tensor], a, b, s.own + skip, n);
        if (Tired(n)) co_await Yield();
      }
    }
    co_return Status();
  }

  // Adds the products over the 2^(k+1) positions that hold the rest of the two vectors; by recursive doubling, so with
  // equal bits on all of them: they multiply the same vectors by the same numbers.
  Task SumDots(int k, std::vector<kernels::AdasumDots>* dots) {
    static_assert(sizeof(kernels::AdasumDots) == 3 * sizeof(double));
    const int block = 2 << k, first = team_.index / block * block;
    Plan plan = AllreduceDoubling(ShapeOf(block, team_.index - first, dots->size() * 3, sizeof(double)));
    for (auto* list : {&plan.sends, &plan.receives}) {
      for (Transfer& t : *list) t.peer += first;
    }
    PlanRun::Work work = WorkOf(Phase::kDots, k, std::move(plan));
    auto* bytes = reinterpret_cast<std::byte*>(dots->data());
    work.unit_bytes = sizeof(double);
    work.dtype = DType::kFloat64;
    work.input.Add(bytes, dots->size() * sizeof(kernels::AdasumDots));
    work.output.Add(bytes, dots->size() * sizeof(kernels::AdasumDots));
    return Perform(std::move(work));
  }

  Task Postscale(Range mine) {
    if (batch_.postscale == 1.0) co_return Status();
    for (const Share& s : SharesOf(mine)) {
      for (size_t at = 0; at < s.elems; at += kTurnElems) {
        const size_t n = std::min(kTurnElems, s.elems - at);
        kernels::Scale(batch_.dtype, s.own + at * unit_, n, batch_.postscale);
        if (Tired(n)) co_await Yield();
      }
    }
    co_return Status();
  }

  bool Tired(size_t elems) {
    worked_ += elems;
    if (worked_ < kTurnElems) return false;
    worked_ = 0;
    return true;
  }

  const Group& group_;
  Batch& batch_;
  const Team team_;
  const size_t unit_;
  std::vector<size_t> starts_;  // of the tensors, in elements of the whole
  size_t elems_ = 0, worked_ = 0;
  Pieces output_;  // holds the working vector from the start
  std::byte* theirs_ = nullptr;
};

}  // namespace

// Vector halving, distance doubling: log2 n levels, in each half of the range is exchanged, the three products of every
// tensor are added over the 2^(k+1) members that share the two vectors (k+1 steps of 24 bytes per tensor) and the own
// half is combined; then log2 n steps back. 2 (n-1)/n of the vector sent per member. Memory: half a vector. Source:
// Maleki et al. 2020, algorithm 1. Invariant: after level k the members of a block of 2^(k+1) positions hold disjoint
// parts of its combined vector, the same whole for all of them; each element of the result is computed by one member
// and copied to the others.
Task AdasumAllreduce(const Group& group, Batch& batch) {
  if (!std::has_single_bit(static_cast<unsigned>(group.size()))) {
    co_return Status(Code::kUnsupported,
                     "Adasum needs a number of ranks that is a power of two; this process set has " +
                         std::to_string(group.size()) + ".");
  }
  if (!IsFloat(batch.dtype)) {
    co_return Status(Code::kUnsupported,
                     std::string("Adasum needs a floating-point type; received ") + NameOf(batch.dtype) + ".");
  }
  if (group.size() == 1) co_return co_await SoloCollective(group, batch);
  Adasum work(group, batch);
  co_return co_await work.Run();
}

}  // namespace hvd::collective::channels
