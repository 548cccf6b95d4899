// Two-level allgather; see collectives.h.
#include "collective/channels/own.h"
#include "collective/hosts/collectives.h"
#include "collective/hosts/inside.h"
#include "collective/shm/collectives.h"

namespace hvd::collective::hosts {
namespace {

// Slice b of a host's vector is the b-th part of every member's rows, so that all members store all the time.
class AllgatherWork {
 public:
  AllgatherWork(const Group& group, Batch& batch)
      : batch_(batch),
        group_(group),
        roles_(RolesOf(group)),
        unit_(SizeOf(batch.dtype)),
        between_(group, batch),
        inside_(group, batch, roles_, between_, BytesOf(batch)) {}

  Task Run() {
    HVD_CO_TRY(co_await AgreeOnRows());
    size_t total = 0;
    for (const shm::Ranges& place : places_) total += place.total();
    roles_.Limit(OwnersFor(total));
    slices_ = SlicesFor(total / roles_.owners);
    HVD_CO_TRY(co_await Pipelined(*this, slices_, between_));
    inside_.Finish();
    co_return Status();
  }

  // The rows of this host's members, to all of them.
  Task Prepare(size_t b) {
    std::vector<shm::Ranges> places;
    for (const int m : roles_.members[roles_.host]) {
      places.emplace_back();
      AppendSlice(&places.back(), m, b);
    }
    const shm::Ranges& own = places[roles_.me];
    own.CopyOver(0, own.total(), StoreMode::kOrdinary);
    co_return co_await inside_.Share(own, places);
  }

  void Start(size_t b) {
    if (!roles_.owner()) return;
    channels::PlanRun::Work work;
    std::vector<size_t> starts{0};
    for (int r = 0; r < roles_.hosts(); ++r) {
      const shm::Ranges part = Part(Vector((roles_.host + r) % roles_.hosts(), b), roles_.me);
      part.ForEach(0, part.total(),
                   [&](const std::byte*, std::byte* out, size_t bytes, size_t) { work.output.Add(out, bytes); });
      starts.push_back(work.output.bytes());
    }
    work.plan = channels::PlanAllgather(channels::MovedShape(roles_.hosts(), roles_.host, work.output.bytes()), starts);
    between_.Start(roles_.across, std::move(work));
  }

  // The other hosts' rows, which the owners have, to all members of this one.
  Task HandOn(size_t b) {
    if (inside_.alone()) co_return between_.status();
    shm::Ranges mine;
    std::vector<shm::Ranges> places(roles_.owners);
    for (int h = 0; h < roles_.hosts(); ++h) {
      if (h == roles_.host) continue;
      const shm::Ranges vector = Vector(h, b);
      for (int o = 0; o < roles_.owners; ++o) places[o].Append(Part(vector, o));
    }
    if (roles_.owner()) mine = places[roles_.me];
    co_return co_await inside_.Share(mine, places);
  }

 private:
  static size_t BytesOf(const Batch& batch) {
    size_t bytes = 0;
    for (const Tensor& t : batch.tensors) bytes += t.elems * SizeOf(batch.dtype);
    return bytes;
  }

  // The rows of all members: inside the hosts, between all owners, from the first owner to members that own nothing.
  Task AgreeOnRows() {
    const size_t count = batch_.tensors.size(), bytes = count * sizeof(int64_t);
    std::vector<int64_t> mine, local(count * roles_.locals());
    rows_.resize(count * group_.size());
    for (const Tensor& t : batch_.tensors) mine.push_back(channels::RowsOf(t));
    HVD_CO_TRY(co_await inside_.Blobs(reinterpret_cast<const std::byte*>(mine.data()), bytes,
                                      reinterpret_cast<std::byte*>(local.data())));
    for (int i = 0; i < roles_.locals(); ++i) {
      for (size_t t = 0; t < count; ++t) rows_[roles_.members[roles_.host][i] * count + t] = local[i * count + t];
    }
    if (roles_.owner()) {
      StartRows(bytes);
      HVD_CO_TRY(co_await between_.Finish());
    }
    if (roles_.locals() > roles_.owners) {
      auto* const data = reinterpret_cast<std::byte*>(rows_.data());
      shm::Ranges mine;
      std::vector<shm::Ranges> places(1);
      places[0].Add(data, data, bytes * group_.size());
      if (roles_.me == 0) mine = places[0];
      HVD_CO_TRY(co_await inside_.Share(mine, places));
    }
    co_return PlaceResults();
  }

  void StartRows(size_t bytes) {
    channels::PlanRun::Work work;
    std::vector<size_t> starts{0};
    for (int r = 0; r < roles_.hosts(); ++r) {
      for (const int m : roles_.members[(roles_.host + r) % roles_.hosts()])
        work.output.Add(reinterpret_cast<std::byte*>(rows_.data()) + m * bytes, bytes);
      starts.push_back(work.output.bytes());
    }
    work.plan =
        channels::AllgatherBruck(channels::ShapeOf(roles_.hosts(), roles_.host, work.output.bytes(), 1), starts);
    work.phase = channels::Phase::kSizes;
    between_.Start(roles_.across, std::move(work));
  }

  Status PlaceResults() {
    const size_t count = batch_.tensors.size();
    places_.resize(group_.size());
    for (size_t i = 0; i < count; ++i) {
      Tensor& t = batch_.tensors[i];
      t.received_rows.clear();
      for (int m = 0; m < group_.size(); ++m) t.received_rows.push_back(rows_[m * count + i]);
      HVD_TRY(channels::PlaceRows(batch_, t, t.received_rows));
      std::byte* out = t.output;
      for (int m = 0; m < group_.size(); ++m) {
        const size_t bytes = static_cast<size_t>(t.received_rows[m]) * t.row_elems * unit_;
        places_[m].Add(m == group_.index ? t.input : out, out, bytes);  // the others' rows are sent on from there
        out += bytes;
      }
    }
    return Status();
  }

  void AppendSlice(shm::Ranges* to, int member, size_t b) const {
    const channels::Range slice =
        channels::PartOf(places_[member].total(), static_cast<int>(slices_), static_cast<int>(b));
    to->AppendPart(places_[member], slice.begin, slice.end);
  }
  // Slice b of a host's vector, and an owner's part of it.
  shm::Ranges Vector(int h, size_t b) const {
    shm::Ranges vector;
    for (const int m : roles_.members[h]) AppendSlice(&vector, m, b);
    return vector;
  }
  shm::Ranges Part(const shm::Ranges& vector, int owner) const {
    const channels::Range part = channels::PartOf(vector.total(), roles_.owners, owner);
    shm::Ranges ranges;
    ranges.AppendPart(vector, part.begin, part.end);
    return ranges;
  }

  Batch& batch_;
  const Group& group_;
  Roles roles_;
  const size_t unit_;
  Between between_;
  Inside inside_;
  std::vector<int64_t> rows_;        // [member][tensor]
  std::vector<shm::Ranges> places_;  // by member: its rows of all tensors in the results
  size_t slices_ = 1;
};

}  // namespace

// B: the rows of all members. Rows first: 1 step inside, ceil(log2 h) between (Bruck), 1 step to members that own
// nothing. Then inside, every member's rows go through its stages once. Between: the owners of a host share its vector
// equally and run an allgather with their counterparts, (h-1)/h B/k bytes sent per owner of equal hosts; each byte
// enters a host once. Then each owner's part of the other hosts' rows goes through its stages once. Moved: 2 B and the
// own rows per member. Steps: those of PlanAllgather for h, per slice. Memory: the results and the stages. Idea: Träff
// and Rougier 2014 (multi-lane collectives). Invariant: an owner sends only rows that have come, to it inside the host
// or by the plan.
Task Allgather(const Group& group, Batch& batch) {
  if (group.one_host()) co_return co_await shm::Allgather(group, batch);
  AllgatherWork work(group, batch);
  co_return co_await work.Run();
}

}  // namespace hvd::collective::hosts
