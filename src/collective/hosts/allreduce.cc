// Two-level allreduce; see collectives.h.
#include "collective/hosts/collectives.h"
#include "collective/hosts/inside.h"
#include "collective/shm/collectives.h"

namespace hvd::collective::hosts {
namespace {

class AllreduceWork {
 public:
  AllreduceWork(const Group& group, Batch& batch)
      : batch_(batch),
        roles_(RolesOf(group)),
        unit_(SizeOf(batch.dtype)),
        ranges_(RangesOf(batch)),
        slices_(SlicesFor((ranges_.total() + roles_.owners - 1) / roles_.owners)),
        between_(group, batch),
        inside_(group, batch, roles_, between_, ranges_.total()) {}

  Task Run() {
    HVD_CO_TRY(co_await Pipelined(*this, slices_, between_));
    inside_.Finish();
    co_return Status();
  }

  // Output of the own part = combination of the members of this host.
  Task Prepare(size_t b) {
    std::vector<shm::Ranges> parts;
    parts.reserve(roles_.owners);
    for (int o = 0; o < roles_.owners; ++o) parts.push_back(Part(b, o));
    co_return co_await inside_.Reduce(parts);
  }

  void Start(size_t b) {
    if (!roles_.owner()) return;
    channels::PlanRun::Work work;
    work.unit_bytes = unit_;
    const shm::Ranges part = Part(b, roles_.me);
    part.ForEach(0, part.total(), [&](const std::byte*, std::byte* out, size_t bytes, size_t) {
      work.input.Add(out, bytes);
      work.output.Add(out, bytes);
    });
    const size_t elems = part.total() / unit_;
    work.plan =
        channels::PlanAllreduce(channels::ShapeOf(roles_.hosts(), roles_.host, elems, unit_), unit_, roles_.owners);
    work.dtype = batch_.dtype;
    work.op = batch_.op;
    work.last_factor = batch_.postscale;
    between_.Start(roles_.across, std::move(work));
  }

  // The owners' parts of a finished slice to all members of this host.
  Task HandOn(size_t b) {
    shm::Ranges mine;
    std::vector<shm::Ranges> places;
    places.reserve(roles_.owners);
    for (int o = 0; o < roles_.owners; ++o) places.push_back(Part(b, o));
    if (roles_.owner()) mine = Outputs(places[roles_.me]);
    co_return co_await inside_.Share(mine, places);
  }

 private:
  shm::Ranges Part(size_t b, int owner) const {
    const channels::Range slice =
        channels::PartOf(ranges_.total() / unit_, static_cast<int>(slices_), static_cast<int>(b));
    const channels::Range part = channels::PartOf(slice.size(), roles_.owners, owner);
    shm::Ranges ranges;
    ranges.AppendPart(ranges_, (slice.begin + part.begin) * unit_, (slice.begin + part.end) * unit_);
    return ranges;
  }
  // What lies there now is what is sent.
  static shm::Ranges Outputs(const shm::Ranges& part) {
    shm::Ranges outputs;
    part.ForEach(0, part.total(),
                 [&](const std::byte*, std::byte* out, size_t bytes, size_t) { outputs.Add(out, out, bytes); });
    return outputs;
  }

  Batch& batch_;
  const Roles roles_;
  const size_t unit_;
  const shm::Ranges ranges_;
  const size_t slices_;
  Between between_;
  Inside inside_;
};

}  // namespace

// Inside: reduce-scatter and allgather through the stages, about 4 B moved per member. Between: every owner runs an
// allreduce of its B/k with its counterparts, 2 (h-1)/h B/k bytes sent per owner; the network of a host carries
// 2 (h-1)/h B in all, and k flows share it. Steps: those of PlanAllreduce for h, per slice. Memory: the stages and two
// segments. Idea: Jia et al. 2018 (hierarchical allreduce), with the parts of Patarasuk and Yuan 2009. Invariant: an
// owner's part is combined inside a host in member order by one member, then between hosts by a plan that gives equal
// bits; nobody else combines it.
Task Allreduce(const Group& group, Batch& batch) {
  if (group.one_host()) co_return co_await shm::Allreduce(group, batch);
  AllreduceWork work(group, batch);
  co_return co_await work.Run();
}

}  // namespace hvd::collective::hosts
