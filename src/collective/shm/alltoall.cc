// Alltoall over shared memory; see collectives.h.
#include <algorithm>

#include "collective/shm/collectives.h"
#include "collective/shm/direct_results.h"
#include "collective/shm/lanes.h"
#include "collective/shm/steps.h"

namespace hvd::collective::shm {
namespace {

// How many rows each member sends to each other, for every tensor, and whether others can store into its results: known
// everywhere after the exchange of the splits.
class SplitPlan {
 public:
  SplitPlan(const Batch& batch, int n) : batch_(batch), n_(n), all_((1 + batch.tensors.size() * n) * n) {}

  size_t header_bytes() const { return (1 + n_ * batch_.tensors.size()) * sizeof(int64_t); }
  std::byte* headers() { return reinterpret_cast<std::byte*>(all_.data()); }
  int64_t rows(int from, int to, size_t tensor) const {
    return all_[from * (1 + batch_.tensors.size() * n_) + 1 + tensor * n_ + to];
  }
  size_t result_bytes(int to, size_t tensor) const {
    size_t sum = 0;
    for (int from = 0; from < n_; ++from) sum += bytes(from, to, tensor);
    return sum;
  }
  Way way() const {
    return ChooseWay(n_, header_bytes(), [this](int m) { return sent(m); }, [this](int m) { return offers(m); });
  }
  size_t bytes(int from, int to, size_t tensor) const {
    return static_cast<size_t>(rows(from, to, tensor)) * batch_.tensors[tensor].row_elems * SizeOf(batch_.dtype);
  }
  size_t bytes(int from, int to) const {
    size_t sum = 0;
    for (size_t t = 0; t < batch_.tensors.size(); ++t) sum += bytes(from, to, t);
    return sum;
  }
  // What `from` sends to others.
  size_t sent(int from) const {
    size_t sum = 0;
    for (int to = 0; to < n_; ++to) sum += to == from ? 0 : bytes(from, to);
    return sum;
  }
  bool is_inline(int from) const { return TravelsInline(header_bytes(), sent(from)); }
  // Where the part for `to` begins in what `from` sends inline: the parts lie in member order, without the own one.
  size_t inline_offset(int from, int to) const {
    size_t at = 0;
    for (int d = 0; d < to; ++d) at += d == from ? 0 : bytes(from, d);
    return at;
  }
  size_t longest_streamed() const {
    size_t longest = 0;
    for (int from = 0; from < n_; ++from) {
      if (is_inline(from)) continue;
      for (int to = 0; to < n_; ++to) longest = std::max(longest, to == from ? 0 : bytes(from, to));
    }
    return longest;
  }

 private:
  bool offers(int member) const { return all_[member * (1 + batch_.tensors.size() * n_)] != 0; }

  const Batch& batch_;
  int n_;
  std::vector<int64_t> all_;  // by member: whether it offers its results, then the rows
};

// The parts of the own inputs by destination.
std::vector<Ranges> OwnParts(const Batch& batch, int n) {
  std::vector<Ranges> parts(n);
  for (const Tensor& t : batch.tensors) {
    const std::byte* in = t.input;
    for (int d = 0; d < n; ++d) {
      const size_t bytes = static_cast<size_t>(t.splits[d]) * t.row_elems * SizeOf(batch.dtype);
      parts[d].Add(in, nullptr, bytes);
      in += bytes;
    }
  }
  return parts;
}

Task ExchangeSplits(Steps& steps, const Batch& batch, const Ranges& sent, SplitPlan& plan) {
  std::vector<int64_t> mine = {CanOfferResults(steps.view(), batch) ? 1 : 0};
  for (const Tensor& t : batch.tensors) mine.insert(mine.end(), t.splits.begin(), t.splits.end());
  co_return co_await ExchangeHeaders(steps, reinterpret_cast<const std::byte*>(mine.data()), plan.header_bytes(), sent,
                                     plan.headers());
}

// Allocates the results and says where the part from each member goes in them.
Result<std::vector<Ranges>> Allocate(const LocalView& view, Batch& batch, const SplitPlan& plan) {
  const int n = view.size(), me = view.index();
  std::vector<Ranges> places(n);
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    Tensor& t = batch.tensors[i];
    size_t bytes = 0;
    t.received_rows.clear();
    for (int m = 0; m < n; ++m) {
      t.received_rows.push_back(plan.rows(m, me, i));
      bytes += plan.bytes(m, me, i);
    }
    HVD_TRY(plan.way() == Way::kDirect ? PlaceInShared(view, &t, bytes) : t.PlaceResult(bytes));
    const std::byte* own = t.input;
    for (int d = 0; d < me; ++d) own += plan.bytes(me, d, i);
    std::byte* out = t.output;
    for (int m = 0; m < n; ++m) {
      places[m].Add(own, out, plan.bytes(m, me, i));  // the input matters for the own part only
      out += plan.bytes(m, me, i);
    }
  }
  return places;
}

// Every part of every tensor, by the member that sends it.
Task WriteParts(Steps& steps, const Batch& batch, const SplitPlan& plan, const DirectResults& results, StoreMode mode) {
  const int n = steps.n(), me = steps.me();
  for (size_t t = 0; t < batch.tensors.size(); ++t) {
    std::vector<size_t> begins(1);
    for (int d = 0; d < n; ++d) begins.push_back(begins.back() + plan.bytes(me, d, t));
    for (int k = 0; k < n; ++k) {
      const int to = (me + k) % n;  // not all to one at the same time
      if (plan.bytes(me, to, t) == 0) continue;
      std::vector<std::byte*> places(1, results.result(to, t, batch.tensors.size()));
      for (int m = 0; m < me; ++m) places[0] += plan.bytes(m, to, t);
      const std::byte* const part = batch.tensors[t].input + begins[to];
      HVD_CO_TRY(co_await CopyToAll(steps, part, plan.bytes(me, to, t), std::move(places), mode));
    }
  }
  steps.Take(1);
  steps.view().Publish(steps.taken());
  co_return co_await steps.view().AllReached(steps.taken());
}

}  // namespace

// With the splits of a rank go its data: all of them where they are few, else the first piece.
Task Alltoall(const Group& group, Batch& batch) {
  Steps steps(group, batch.seq);
  LocalView& view = steps.view();
  const int n = steps.n(), me = steps.me();
  SplitPlan plan(batch, n);
  const std::vector<Ranges> parts = OwnParts(batch, n);
  Ranges sent;  // in the order of inline_offset
  for (int d = 0; d < n; ++d) {
    if (d != me) sent.Append(parts[d]);
  }
  const bool streams = !TravelsInline(plan.header_bytes(), sent.total());
  const Lanes lanes(n);
  StoreTrial trial(group, StoreChooser::Use::kAlltoall, streams ? sent.total() : 0);
  const auto fill = [&](size_t c, std::byte* piece) {
    for (int d = 0; d < n && streams; ++d) {
      const size_t total = parts[d].total();
      if (d != me)
        parts[d].Gather(lanes.begin(total, c), lanes.end(total, c), piece + lanes.offset(me, d), trial.mode());
    }
  };
  if (StagesFirst(plan.header_bytes(), sent.total(), CanOfferResults(view, batch))) {
    HVD_CO_TRY(co_await AcquireStages(steps));
    trial.Start();
    fill(0, PieceOf(view, me, 0));
    trial.Pause();
  }
  HVD_CO_TRY(co_await ExchangeSplits(steps, batch, sent, plan));
  const Result<std::vector<Ranges>> allocated = Allocate(view, batch, plan);
  if (!allocated.ok()) co_return allocated.status();
  const Way way = plan.way();
  if (way == Way::kDirect) {
    DirectResults direct;
    HVD_CO_TRY(co_await direct.Exchange(steps, batch, [&](int m, size_t t) { return plan.result_bytes(m, t); }));
    if (direct.complete()) {
      trial.Start();
      HVD_CO_TRY(co_await WriteParts(steps, batch, plan, direct, trial.mode()));
      trial.Stop();
      view.Finish();
      co_return Status();
    }
  }
  const std::vector<Ranges>& places = *allocated;
  StoreTrial results(group, StoreChooser::Use::kAlltoallResults, TotalOf(places));
  results.Start();
  places[me].CopyOver(0, places[me].total(), results.mode());
  for (int m = 0; m < n; ++m) {
    if (m == me || !plan.is_inline(m)) continue;
    places[m].Scatter(0, places[m].total(), InlineData(steps, m, plan.header_bytes()) + plan.inline_offset(m, me));
  }
  const auto drain = [&](size_t c) {
    for (int m = 0; m < n; ++m) {
      if (m == me || plan.is_inline(m)) continue;
      const size_t total = places[m].total();
      places[m].Scatter(lanes.begin(total, c), lanes.end(total, c), PieceOf(view, m, c) + lanes.offset(m, me),
                        results.mode());
    }
  };
  trial.Start();
  const size_t rounds = lanes.rounds(plan.longest_streamed());
  if (way == Way::kAnnounced) {
    HVD_CO_TRY(co_await StreamAnnounced(steps, rounds, 2 * kPieceBytes, fill, drain));
  } else {
    HVD_CO_TRY(co_await StreamPieces(steps, rounds, 2 * kPieceBytes, fill, drain));
  }
  trial.Stop();
  results.Stop();
  view.Finish();
  co_return Status();
}

}  // namespace hvd::collective::shm
