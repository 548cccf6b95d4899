// Two-level broadcast; see collectives.h.
#include "collective/channels/own.h"
#include "collective/hosts/collectives.h"
#include "collective/hosts/inside.h"
#include "collective/shm/collectives.h"

namespace hvd::collective::hosts {
namespace {

class BroadcastWork {
 public:
  BroadcastWork(const Group& group, Batch& batch)
      : batch_(batch),
        roles_(RolesOf(group)),
        is_root_(group.index == batch.root),
        ranges_(RangesOf(batch)),
        between_(group, batch),
        inside_(group, batch, roles_, between_, ranges_.total()) {
    roles_.Limit(OwnersFor(ranges_.total()));
    slices_ = SlicesOfChain(ranges_.total() / roles_.owners, roles_.hosts());
    while (root_local() == roles_.locals_of(root_host_)) ++root_host_;
  }

  Task Run() {
    HVD_CO_TRY(co_await Pipelined(*this, slices_, between_));
    inside_.Finish();
    for (const Tensor& t : batch_.tensors) {
      if (is_root_) HVD_CO_TRY(co_await channels::CopyOwn(t.output, t.input, t.elems * SizeOf(batch_.dtype)));
    }
    co_return Status();
  }

  // On the root's host, from the root to all.
  Task Prepare(size_t b) {
    if (roles_.host != root_host_) co_return between_.status();
    std::vector<shm::Ranges> places(root_local() + 1);
    shm::Ranges mine;
    places.back() = Sliced(b);
    if (is_root_) mine = places.back();
    if (starts_early()) StartPart(b);
    co_return co_await inside_.Share(mine, places);
  }

  void Start(size_t b) {
    if (roles_.owner() && !starts_early()) StartPart(b);
  }

  // On the other hosts, from the owners to all.
  Task HandOn(size_t b) {
    if (roles_.host == root_host_) co_return between_.status();
    shm::Ranges mine;
    std::vector<shm::Ranges> places;
    places.reserve(roles_.owners);
    for (int o = 0; o < roles_.owners; ++o) places.push_back(Part(b, o));
    if (roles_.owner()) {
      const shm::Ranges& own = places[roles_.me];
      own.ForEach(0, own.total(),
                  [&](const std::byte*, std::byte* out, size_t bytes, size_t) { mine.Add(out, out, bytes); });
    }
    co_return co_await inside_.Share(mine, places);
  }

 private:
  // Nothing of the one slice has to come to the root first.
  bool starts_early() const { return is_root_ && roles_.owner() && slices_ == 1; }

  void StartPart(size_t b) {
    channels::PlanRun::Work work;
    const shm::Ranges part = Part(b, roles_.me);
    part.ForEach(0, part.total(), [&](const std::byte* in, std::byte* out, size_t bytes, size_t) {
      work.input.Add(is_root_ ? in : out, bytes);
      if (roles_.host != root_host_) work.output.Add(out, bytes);
    });
    work.plan = channels::PlanBroadcast(channels::ShapeOf(roles_.hosts(), roles_.host, part.total(), 1), root_host_, 1,
                                        roles_.owners);
    between_.Start(roles_.across, std::move(work));
  }

  // Of the root on host root_host_; behind all when it is elsewhere.
  int root_local() const {
    const std::vector<int>& members = roles_.members[root_host_];
    return static_cast<int>(std::find(members.begin(), members.end(), batch_.root) - members.begin());
  }

  shm::Ranges Sliced(size_t b) const {
    const channels::Range slice = channels::PartOf(ranges_.total(), static_cast<int>(slices_), static_cast<int>(b));
    shm::Ranges ranges;
    ranges.AppendPart(ranges_, slice.begin, slice.end);
    return ranges;
  }
  shm::Ranges Part(size_t b, int owner) const {
    const shm::Ranges slice = Sliced(b);
    const channels::Range part = channels::PartOf(slice.total(), roles_.owners, owner);
    shm::Ranges ranges;
    ranges.AppendPart(slice, part.begin, part.end);
    return ranges;
  }

  Batch& batch_;
  Roles roles_;
  const bool is_root_;
  int root_host_ = 0;
  const shm::Ranges ranges_;
  size_t slices_ = 1;
  Between between_;
  Inside inside_;
};

}  // namespace

// What is smaller than a message costs (schedule.cc) takes as long as its steps: 2 inside and log2 h between, or
// log2 (h l) in a tree. Measured with 2 hosts x 2: 64 KB 1.2 times as long in two levels, 1 MB 0.9, 16 MB 0.5.
bool BroadcastPays(const Group& group, const Batch& batch) {
  constexpr size_t kSmall = 64 << 10, kFewLocals = 4;
  size_t largest = 0;
  for (const auto& members : RolesOf(group).members) largest = std::max(largest, members.size());
  return largest > kFewLocals || RangesOf(batch).total() > kSmall;
}

// On the root's host the tensors go through the root's stages once and all others read them. Between: each owner there
// sends its B/k to its counterparts by a tree or a chain (PlanBroadcast for h): B leaves the root's host once in a
// chain, and enters every other host once; k flows share it. There, the owners' parts go through their stages once.
// Moved: 2 B per member. Steps: those of the plan, per slice, and 1 inside before and behind. Memory: the stages. Idea:
// Träff and Rougier 2014 (multi-lane broadcast). Invariant: an owner sends what has come to it, the root its input.
Task Broadcast(const Group& group, Batch& batch) {
  if (group.one_host()) co_return co_await shm::Broadcast(group, batch);
  BroadcastWork work(group, batch);
  co_return co_await work.Run();
}

}  // namespace hvd::collective::hosts
