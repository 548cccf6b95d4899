// Two-level reducescatter; see collectives.h.
#include "collective/channels/own.h"
#include "collective/hosts/collectives.h"
#include "collective/hosts/inside.h"
#include "collective/shm/collectives.h"

namespace hvd::collective::hosts {
namespace {

// The blocks of a host's members one after the other are the host's vector; the owners' parts of it are the members'
// blocks where all of them are owners, else equal parts that are handed over in the end.
class ReducescatterWork {
 public:
  ReducescatterWork(const Group& group, Batch& batch)
      : batch_(batch),
        group_(group),
        roles_(RolesOf(group)),
        unit_(SizeOf(batch.dtype)),
        between_(group, batch),
        inside_(group, batch, roles_, between_, BytesOf(batch)) {}

  Task Run() {
    HVD_CO_TRY(PlaceResults());
    size_t largest = 0;
    for (int o = 0; o < roles_.owners; ++o) {
      size_t bytes = 0;
      for (int h = 0; h < roles_.hosts(); ++h) bytes += OwnerPart(h, o).size();
      largest = std::max(largest, bytes);
    }
    slices_ = SlicesFor(largest);
    if (roles_.owner()) HVD_CO_TRY(TakeMemory());
    HVD_CO_TRY(co_await Pipelined(*this, slices_, between_));
    inside_.Finish();
    co_return Status();
  }

  // sums_ = combinations of the members of this host: of every host's slice of the own part.
  Task Prepare(size_t b) {
    std::vector<shm::Ranges> parts(roles_.owners);
    for (int o = 0; o < roles_.owners; ++o) {
      std::byte* sums = o == roles_.me ? Sums(b) : nullptr;
      for (int h = 0; h < roles_.hosts(); ++h) {
        const channels::Range slice = Slice(h, o, b);
        vectors_[h].ForEach(slice.begin, slice.end, [&](const std::byte* in, std::byte*, size_t bytes, size_t) {
          parts[o].Add(in, sums, bytes);
          if (sums != nullptr) sums += bytes;
        });
      }
    }
    co_return co_await inside_.Reduce(parts);
  }

  void Start(size_t b) {
    if (!roles_.owner()) return;
    channels::PlanRun::Work work;
    std::vector<channels::Range> sends;
    size_t elems = 0;
    for (int h = 0; h < roles_.hosts(); ++h) {
      const size_t n = Slice(h, roles_.me, b).size() / unit_;
      sends.push_back({elems, elems + n});
      elems += n;
    }
    work.input.Add(Sums(b), elems * unit_);
    if (handed_over()) {
      work.output.Add(Held(b), Slice(roles_.host, roles_.me, b).size());
    } else {
      const channels::Range slice = Slice(roles_.host, roles_.me, b);
      vectors_[roles_.host].ForEach(
          slice.begin, slice.end,
          [&](const std::byte*, std::byte* out, size_t bytes, size_t) { work.output.Add(out, bytes); });
    }
    work.unit_bytes = unit_;
    work.own_at = sends[roles_.host].begin;
    work.plan = channels::PairwiseReduce(channels::ShapeOf(roles_.hosts(), roles_.host, elems, unit_), sends);
    work.dtype = batch_.dtype;
    work.op = batch_.op;
    work.last_factor = batch_.postscale;
    between_.Start(roles_.across, std::move(work));
  }

  // Where a member owns nothing: the owners hold what belongs to all members of this host.
  Task HandOn(size_t b) {
    if (!handed_over()) co_return Status();
    shm::Ranges mine;
    std::vector<shm::Ranges> places(roles_.owners);
    for (int o = 0; o < roles_.owners; ++o) {
      const channels::Range slice = Slice(roles_.host, o, b);
      places[o].AppendPart(vectors_[roles_.host], slice.begin, slice.end);
    }
    if (roles_.owner()) {
      const size_t bytes = places[roles_.me].total();
      mine.Add(Held(b), nullptr, bytes);
      places[roles_.me].Scatter(0, bytes, Held(b));
    }
    co_return co_await inside_.Share(mine, places);
  }

 private:
  static size_t BytesOf(const Batch& batch) {
    size_t bytes = 0;
    for (const Tensor& t : batch.tensors) bytes += t.elems * SizeOf(batch.dtype);
    return bytes;
  }
  bool handed_over() const { return roles_.locals() > roles_.owners; }

  Status PlaceResults() {
    vectors_.resize(roles_.hosts());
    ends_.resize(roles_.hosts());
    for (int h = 0; h < roles_.hosts(); ++h) {
      for (const int m : roles_.members[h]) {
        for (Tensor& t : batch_.tensors) {
          const channels::Range rows = channels::PartOf(static_cast<size_t>(channels::RowsOf(t)), group_.size(), m);
          const size_t row_bytes = t.row_elems * unit_;
          if (m == group_.index) HVD_TRY(t.PlaceResult(rows.size() * row_bytes));
          vectors_[h].Add(t.input + rows.begin * row_bytes, m == group_.index ? t.output : nullptr,
                          rows.size() * row_bytes);
        }
        ends_[h].push_back(vectors_[h].total());
      }
    }
    return Status();
  }

  // Two slices each: one is filled while the one before travels or is handed over.
  Status TakeMemory() {
    for (int h = 0; h < roles_.hosts(); ++h) sums_bytes_ += Slice(h, roles_.me, 0).size();  // the longest
    held_bytes_ = handed_over() ? Slice(roles_.host, roles_.me, 0).size() : 0;
    memory_.emplace(2 * (sums_bytes_ + held_bytes_));
    return memory_->data != nullptr ? Status() : OutOfMemory();
  }
  std::byte* Sums(size_t b) { return memory_->data + b % 2 * sums_bytes_; }
  std::byte* Held(size_t b) { return memory_->data + 2 * sums_bytes_ + b % 2 * held_bytes_; }

  // In the vector of a host, in bytes.
  channels::Range OwnerPart(int h, int owner) const {
    if (roles_.locals_of(h) == roles_.owners) return {owner == 0 ? 0 : ends_[h][owner - 1], ends_[h][owner]};
    const channels::Range part = channels::PartOf(vectors_[h].total() / unit_, roles_.owners, owner);
    return {part.begin * unit_, part.end * unit_};
  }
  channels::Range Slice(int h, int owner, size_t b) const {
    const channels::Range whole = OwnerPart(h, owner);
    const channels::Range part = channels::PartOf(whole.size() / unit_, static_cast<int>(slices_), static_cast<int>(b));
    return {whole.begin + part.begin * unit_, whole.begin + part.end * unit_};
  }

  Batch& batch_;
  const Group& group_;
  const Roles roles_;
  const size_t unit_;
  Between between_;
  Inside inside_;
  std::vector<shm::Ranges> vectors_;       // by host: own inputs; outputs for the own block only
  std::vector<std::vector<size_t>> ends_;  // by host: where the blocks of its members end
  size_t slices_ = 1;
  std::optional<Block> memory_;  // of an owner
  size_t sums_bytes_ = 0, held_bytes_ = 0;
};

}  // namespace

// Inside: reduce-scatter of everything through the stages, 2 B moved per member. Between: an owner sends every
// counterpart its host's sum of that host's part, (h-1)/h B/k bytes sent per owner, (h-1)/h B per host, h-1 steps per
// slice (PairwiseReduce). Where a host has more members than there are owners, its owners hand B/h over through the
// stages. Memory: the stages and four slices (at most 16 MB). Idea: the first half of Jia et al. 2018. Invariant: every
// element is combined inside each host in member order by one owner, then at one owner in an order of hosts that
// depends on nothing but the member it belongs to.
Task Reducescatter(const Group& group, Batch& batch) {
  if (group.one_host()) co_return co_await shm::Reducescatter(group, batch);
  ReducescatterWork work(group, batch);
  co_return co_await work.Run();
}

}  // namespace hvd::collective::hosts
