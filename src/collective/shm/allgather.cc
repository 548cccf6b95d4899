// Allgather over shared memory; see collectives.h.
#include <algorithm>

#include "collective/shm/collectives.h"
#include "collective/shm/steps.h"

namespace hvd::collective::shm {
namespace {

// Who sends what: the rows of every member of every tensor.
class GatherPlan {
 public:
  GatherPlan(const Batch& batch, int n) : batch_(batch), all_rows_(n * batch.tensors.size()) {}

  size_t header_bytes() const { return batch_.tensors.size() * sizeof(int64_t); }
  std::byte* headers() { return reinterpret_cast<std::byte*>(all_rows_.data()); }
  int64_t rows(int member, size_t tensor) const { return all_rows_[member * batch_.tensors.size() + tensor]; }
  size_t bytes(int member, size_t tensor) const {
    return static_cast<size_t>(rows(member, tensor)) * batch_.tensors[tensor].row_elems * SizeOf(batch_.dtype);
  }

 private:
  const Batch& batch_;
  std::vector<int64_t> all_rows_;
};

Status Allocate(Batch& batch, const GatherPlan& plan, int n) {
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    Tensor& t = batch.tensors[i];
    size_t bytes = 0;
    t.received_rows.clear();
    for (int m = 0; m < n; ++m) {
      t.received_rows.push_back(plan.rows(m, i));
      bytes += plan.bytes(m, i);
    }
    HVD_TRY(t.PlaceResult(bytes));
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

Task ExchangeRows(Steps& steps, const Batch& batch, GatherPlan& plan) {
  std::vector<int64_t> mine;
  Ranges inputs;
  for (const Tensor& t : batch.tensors) {
    mine.push_back(t.shape.empty() ? 1 : t.shape[0]);
    inputs.Add(t.input, nullptr, t.elems * SizeOf(batch.dtype));
  }
  co_return co_await ExchangeHeaders(steps, reinterpret_cast<const std::byte*>(mine.data()), plan.header_bytes(),
                                     inputs, plan.headers());
}

// The parts of all members, piece by piece.
class GatherStream {
 public:
  GatherStream(Steps& steps, const std::vector<Ranges>& places, size_t header_bytes)
      : steps_(steps), places_(places), header_bytes_(header_bytes) {}
  void set_stores(StoreMode shared, StoreMode results) {
    shared_ = shared;
    results_ = results;
  }

  bool is_inline(int member) const { return TravelsInline(header_bytes_, places_[member].total()); }
  // Pieces of the longest part that does not travel inline.
  size_t rounds() const {
    size_t longest = 0;
    for (int m = 0; m < steps_.n(); ++m) {
      if (!is_inline(m)) longest = std::max(longest, places_[m].total());
    }
    return (longest + kPieceBytes - 1) / kPieceBytes;
  }
  void DrainInline() {
    for (int m = 0; m < steps_.n(); ++m) {
      if (!is_inline(m)) continue;
      if (m == steps_.me()) {
        CopyOwn(0, places_[m].total());
      } else {
        places_[m].Scatter(0, places_[m].total(), InlineData(steps_, m, header_bytes_));
      }
    }
  }
  void Fill(size_t c, std::byte* piece) {
    if (is_inline(steps_.me())) return;
    const Ranges& mine = places_[steps_.me()];
    mine.Gather(c * kPieceBytes, End(mine, c), piece, shared_);
    CopyOwn(c * kPieceBytes, End(mine, c));
  }
  void Drain(size_t c) {
    for (int m = 0; m < steps_.n(); ++m) {
      if (m == steps_.me() || is_inline(m)) continue;
      places_[m].Scatter(c * kPieceBytes, End(places_[m], c), PieceOf(steps_.view(), m, c), results_);
    }
  }

 private:
  static size_t End(const Ranges& r, size_t c) { return std::min(r.total(), (c + 1) * kPieceBytes); }
  void CopyOwn(size_t from, size_t to) { places_[steps_.me()].CopyOver(from, to, results_); }

  Steps& steps_;
  const std::vector<Ranges>& places_;
  size_t header_bytes_;
  StoreMode shared_ = StoreMode::kOrdinary, results_ = StoreMode::kOrdinary;
};

}  // namespace

Task Allgather(const Group& group, Batch& batch) {
  Steps steps(group, batch.seq);
  GatherPlan plan(batch, steps.n());
  HVD_CO_TRY(co_await ExchangeRows(steps, batch, plan));
  HVD_CO_TRY(Allocate(batch, plan, steps.n()));
  const std::vector<Ranges> places = Places(batch, plan, steps.n());
  GatherStream stream(steps, places, plan.header_bytes());
  stream.DrainInline();
  StoreTrial trial(group, StoreChooser::Use::kAllgather, stream.rounds() * kPieceBytes);  // the same on all members
  StoreTrial results(group, StoreChooser::Use::kAllgatherResults, TotalOf(places));
  stream.set_stores(trial.mode(), results.mode());
  trial.Start();
  results.Start();
  HVD_CO_TRY(co_await StreamPieces(
      steps, stream.rounds(), steps.n() * kPieceBytes, [&stream](size_t c, std::byte* piece) { stream.Fill(c, piece); },
      [&stream](size_t c) { stream.Drain(c); }));
  trial.Stop();
  results.Stop();
  steps.view().Finish();
  co_return Status();
}

}  // namespace hvd::collective::shm
