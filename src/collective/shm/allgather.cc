// Allgather over shared memory; see collectives.h.
#include <algorithm>

#include "collective/shm/collectives.h"
#include "collective/shm/steps.h"

namespace hvd::collective::shm {
namespace {

// The rows that every member sends of every tensor.
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

Ranges InputsOf(const Batch& batch) {
  Ranges inputs;
  for (const Tensor& t : batch.tensors) inputs.Add(t.input, nullptr, t.elems * SizeOf(batch.dtype));
  return inputs;
}

size_t PieceEnd(const Ranges& part, size_t c) { return std::min(part.total(), (c + 1) * kPieceBytes); }

// The rows of all to all. With the own ones go the data: all of it where it is little, else the first piece.
Task ExchangeRows(Steps& steps, const Batch& batch, const Ranges& inputs, StoreTrial& trial, GatherPlan& plan) {
  std::vector<int64_t> mine;
  mine.reserve(batch.tensors.size());
  for (const Tensor& t : batch.tensors) mine.push_back(t.shape.empty() ? 1 : t.shape[0]);
  if (!TravelsInline(plan.header_bytes(), inputs.total())) {
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

}  // namespace

Task Allgather(const Group& group, Batch& batch) {
  Steps steps(group, batch.seq);
  GatherPlan plan(batch, steps.n());
  const Ranges inputs = InputsOf(batch);
  const bool streams = !TravelsInline(plan.header_bytes(), inputs.total());
  StoreTrial trial(group, StoreChooser::Use::kAllgather, streams ? inputs.total() : 0);
  HVD_CO_TRY(co_await ExchangeRows(steps, batch, inputs, trial, plan));
  HVD_CO_TRY(Allocate(batch, plan, steps.n()));
  const std::vector<Ranges> places = Places(batch, plan, steps.n());
  StoreTrial results(group, StoreChooser::Use::kAllgatherResults, TotalOf(places));
  GatherStream stream(steps, places, plan.header_bytes(), trial.mode(), results.mode());
  trial.Start();
  results.Start();
  stream.DrainInline();
  HVD_CO_TRY(co_await StreamAnnounced(
      steps, stream.rounds(), steps.n() * kPieceBytes, [&stream](size_t c, std::byte* piece) { stream.Fill(c, piece); },
      [&stream](size_t c) { stream.Drain(c); }));
  trial.Stop();
  results.Stop();
  steps.view().Finish();
  co_return Status();
}

}  // namespace hvd::collective::shm
