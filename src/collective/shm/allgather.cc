// Allgather over shared memory; see collectives.h.
#include <algorithm>

#include "collective/shm/collectives.h"
#include "collective/shm/direct_results.h"
#include "collective/shm/steps.h"

namespace hvd::collective::shm {
namespace {

// The rows that every member sends of every tensor, and whether others can store into its results.
class GatherPlan {
 public:
  GatherPlan(const Batch& batch, int n) : batch_(batch), n_(n), all_(n * (1 + batch.tensors.size())) {}

  size_t header_bytes() const { return (1 + batch_.tensors.size()) * sizeof(int64_t); }
  std::byte* headers() { return reinterpret_cast<std::byte*>(all_.data()); }
  int64_t rows(int member, size_t tensor) const { return all_[member * (1 + batch_.tensors.size()) + 1 + tensor]; }
  size_t bytes(int member, size_t tensor) const {
    return static_cast<size_t>(rows(member, tensor)) * batch_.tensors[tensor].row_elems * SizeOf(batch_.dtype);
  }
  size_t bytes(int member) const {
    size_t sum = 0;
    for (size_t t = 0; t < batch_.tensors.size(); ++t) sum += bytes(member, t);
    return sum;
  }
  // Of a result, which is the same on all members.
  size_t result_bytes(size_t tensor) const {
    size_t sum = 0;
    for (int m = 0; m < n_; ++m) sum += bytes(m, tensor);
    return sum;
  }
  Way way() const {
    return ChooseWay(n_, header_bytes(), [this](int m) { return bytes(m); }, [this](int m) { return offers(m); });
  }

 private:
  bool offers(int member) const { return all_[member * (1 + batch_.tensors.size())] != 0; }

  const Batch& batch_;
  const int n_;
  std::vector<int64_t> all_;  // by member: whether it offers its results, then the rows
};

Status Allocate(const LocalView& view, Batch& batch, const GatherPlan& plan, int n) {
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    Tensor& t = batch.tensors[i];
    size_t bytes = 0;
    t.received_rows.clear();
    for (int m = 0; m < n; ++m) {
      t.received_rows.push_back(plan.rows(m, i));
      bytes += plan.bytes(m, i);
    }
    HVD_TRY(plan.way() == Way::kDirect ? PlaceInShared(view, &t, bytes) : t.PlaceResult(bytes));
  }
  return Status();
}

// Where the part of each member goes in the results. The inputs matter for the own part only.
std::vector<Ranges> Places(const Batch& batch, const GatherPlan& plan, int n) {
  std::vector<Ranges> places(n);
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    std::byte* out = batch.tensors[i].output;
    for (int m = 0; m < n; ++m) {
      const size_t bytes = plan.bytes(m, i);
      places[m].Add(batch.tensors[i].input, out, bytes);
      out += bytes;
    }
  }
  return places;
}

Ranges InputsOf(const Batch& batch) {
  Ranges inputs;
  for (const Tensor& t : batch.tensors) inputs.Add(t.input, nullptr, t.elems * SizeOf(batch.dtype));
  return inputs;
}

size_t PieceEnd(const Ranges& part, size_t c) { return std::min(part.total(), (c + 1) * kPieceBytes); }

// The rows of all to all. With the own ones go the data: all of it where it is little, else the first piece.
Task ExchangeRows(Steps& steps, const Batch& batch, const Ranges& inputs, StoreTrial& trial, GatherPlan& plan) {
  const bool offers = CanOfferResults(steps.view(), batch);
  std::vector<int64_t> mine;
  mine.reserve(1 + batch.tensors.size());
  mine.push_back(offers ? 1 : 0);
  for (const Tensor& t : batch.tensors) mine.push_back(t.shape.empty() ? 1 : t.shape[0]);
  if (StagesFirst(plan.header_bytes(), inputs.total(), offers)) {
    HVD_CO_TRY(co_await AcquireStages(steps));
    trial.Start();
    inputs.Gather(0, PieceEnd(inputs, 0), PieceOf(steps.view(), steps.me(), 0), trial.mode());
    trial.Pause();
  }
  co_return co_await ExchangeHeaders(steps, reinterpret_cast<const std::byte*>(mine.data()), plan.header_bytes(),
                                     inputs, plan.headers());
}

// The parts of all members, piece by piece.
class GatherStream {
 public:
  GatherStream(Steps& steps, const std::vector<Ranges>& places, size_t header_bytes, StoreMode shared,
               StoreMode results)
      : steps_(steps), places_(places), header_bytes_(header_bytes), shared_(shared), results_(results) {}

  bool is_inline(int member) const { return TravelsInline(header_bytes_, places_[member].total()); }
  // Pieces of the longest part that does not travel inline.
  size_t rounds() const {
    size_t longest = 0;
    for (int m = 0; m < steps_.n(); ++m) {
      if (!is_inline(m)) longest = std::max(longest, places_[m].total());
    }
    return (longest + kPieceBytes - 1) / kPieceBytes;
  }
  // What came with the rows, and the first own piece, which went with them.
  void DrainInline() {
    for (int m = 0; m < steps_.n(); ++m) {
      if (m == steps_.me()) {
        CopyOwn(0);
      } else if (is_inline(m)) {
        places_[m].Scatter(0, places_[m].total(), InlineData(steps_, m, header_bytes_));
      }
    }
  }
  void Fill(size_t c, std::byte* piece) {
    const Ranges& mine = places_[steps_.me()];
    if (is_inline(steps_.me())) return;
    mine.Gather(c * kPieceBytes, PieceEnd(mine, c), piece, shared_);
    CopyOwn(c);
  }
  void Drain(size_t c) {
    for (int m = 0; m < steps_.n(); ++m) {
      if (m == steps_.me() || is_inline(m)) continue;
      places_[m].Scatter(c * kPieceBytes, PieceEnd(places_[m], c), PieceOf(steps_.view(), m, c), results_);
    }
  }

 private:
  // Right after it has been read for the others: it is in the cache. What travels inline is less than a piece.
  void CopyOwn(size_t c) {
    const Ranges& mine = places_[steps_.me()];
    mine.CopyOver(c * kPieceBytes, PieceEnd(mine, c), results_);
  }

  Steps& steps_;
  const std::vector<Ranges>& places_;
  size_t header_bytes_;
  StoreMode shared_, results_;
};

// Every member's part of every tensor, by the member itself.
Task WriteParts(Steps& steps, const Batch& batch, const GatherPlan& plan, const DirectResults& results,
                StoreMode mode) {
  const int n = steps.n(), me = steps.me();
  for (size_t t = 0; t < batch.tensors.size(); ++t) {
    size_t before = 0;
    for (int m = 0; m < me; ++m) before += plan.bytes(m, t);
    std::vector<std::byte*> places;
    for (int m = 0; m < n && plan.bytes(me, t) > 0; ++m)
      places.push_back(results.result((me + m) % n, t, batch.tensors.size()) + before);
    HVD_CO_TRY(co_await CopyToAll(steps, batch.tensors[t].input, plan.bytes(me, t), std::move(places), mode));
  }
  steps.Take(1);
  steps.view().Publish(steps.taken());
  co_return co_await steps.view().AllReached(steps.taken());
}

}  // namespace

Task Allgather(const Group& group, Batch& batch) {
  Steps steps(group, batch.seq);
  GatherPlan plan(batch, steps.n());
  const Ranges inputs = InputsOf(batch);
  const bool streams = !TravelsInline(plan.header_bytes(), inputs.total());  // or is written directly
  StoreTrial trial(group, StoreChooser::Use::kAllgather, streams ? inputs.total() : 0);
  HVD_CO_TRY(co_await ExchangeRows(steps, batch, inputs, trial, plan));
  HVD_CO_TRY(Allocate(steps.view(), batch, plan, steps.n()));
  const Way way = plan.way();
  if (way == Way::kDirect) {
    DirectResults direct;
    HVD_CO_TRY(co_await direct.Exchange(steps, batch, [&](int, size_t t) { return plan.result_bytes(t); }));
    if (direct.complete()) {
      trial.Start();
      HVD_CO_TRY(co_await WriteParts(steps, batch, plan, direct, trial.mode()));
      trial.Stop();
      steps.view().Finish();
      co_return Status();
    }
  }
  const std::vector<Ranges> places = Places(batch, plan, steps.n());
  StoreTrial results(group, StoreChooser::Use::kAllgatherResults, TotalOf(places));
  GatherStream stream(steps, places, plan.header_bytes(), trial.mode(), results.mode());
  trial.Start();
  results.Start();
  stream.DrainInline();
  const auto fill = [&stream](size_t c, std::byte* piece) { stream.Fill(c, piece); };
  const auto drain = [&stream](size_t c) { stream.Drain(c); };
  const size_t round_bytes = steps.n() * kPieceBytes;
  if (way == Way::kAnnounced) {
    HVD_CO_TRY(co_await StreamAnnounced(steps, stream.rounds(), round_bytes, fill, drain));
  } else {
    HVD_CO_TRY(co_await StreamPieces(steps, stream.rounds(), round_bytes, fill, drain));
  }
  trial.Stop();
  results.Stop();
  steps.view().Finish();
  co_return Status();
}

}  // namespace hvd::collective::shm
