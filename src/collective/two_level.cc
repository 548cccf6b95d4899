#include "collective/two_level.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "collective/channels/collectives.h"
#include "collective/channels/plan_run.h"
#include "collective/kernels/kernels.h"
#include "collective/shm/collectives.h"
#include "collective/shm/steps.h"

namespace hvd::collective {
namespace {

// A block's part of one owner: large enough for the network, small enough that blocks overlap and stay in a shared
// cache.
constexpr size_t kSmallestPart = 256 << 10, kLargestPart = 4 << 20;
constexpr size_t kFewestBlocks = 4;

// Who does what: `owners` members of every host (as many as the smallest host has) own a part of each block and drive
// it across the hosts.
struct Roles {
  int locals = 1, owners = 1, hosts = 1;
  int me = 0;             // index among the members of this host
  channels::Team across;  // of this owner and its counterparts, hosts by their lowest member
  bool owner() const { return me < owners; }
};

Roles RolesOf(const Group& group) {
  Roles roles;
  std::vector<std::vector<int>> hosts;  // members
  std::vector<int> numbers;
  for (int m = 0; m < group.size(); ++m) {
    const size_t h = static_cast<size_t>(std::find(numbers.begin(), numbers.end(), group.host_of[m]) - numbers.begin());
    if (h == numbers.size()) {
      numbers.push_back(group.host_of[m]);
      hosts.emplace_back();
    }
    hosts[h].push_back(m);
  }
  roles.hosts = static_cast<int>(hosts.size());
  roles.locals = static_cast<int>(group.local_members.size());
  roles.me = static_cast<int>(std::find(group.local_members.begin(), group.local_members.end(), group.index) -
                              group.local_members.begin());
  size_t smallest = hosts[0].size();
  for (const auto& h : hosts) smallest = std::min(smallest, h.size());
  roles.owners = static_cast<int>(smallest);
  if (!roles.owner()) return roles;
  roles.across.rank = group.ranks[group.index];
  for (int h = 0; h < roles.hosts; ++h) {
    const int member = hosts[h][roles.me];
    if (member == group.index) roles.across.index = h;
    roles.across.member.push_back(member);
    roles.across.channels.push_back(group.channels[member]);
  }
  return roles;
}

class TwoLevel {
 public:
  TwoLevel(const Group& group, Batch& batch)
      : group_(group), batch_(batch), roles_(RolesOf(group)), unit_(SizeOf(batch.dtype)) {
    for (const Tensor& t : batch.tensors) {
      ranges_.Add(t.input, t.output, t.elems * unit_);
      output_.Add(t.output, t.elems * unit_);
    }
    const size_t elems = ranges_.total() / unit_;
    const size_t part =
        std::clamp(ranges_.total() / roles_.owners / kFewestBlocks, kSmallestPart, kLargestPart) / unit_;
    blocks_ = std::max<size_t>(1, (elems + part * roles_.owners - 1) / (part * roles_.owners));
    if (group.local != nullptr) steps_.emplace(group, batch.seq);
    // An owner stages for the other owners; where some members own nothing, they stage for all of them.
    lanes_ = roles_.locals > roles_.owners ? roles_.owners : std::max(1, roles_.owners - 1);
    lane_bytes_ = shm::kPieceBytes / lanes_ / shm::kShareAlign * shm::kShareAlign;
    mode_ = UnmeasuredStores(group, ranges_.total());
  }

  // Block b is reduced inside the hosts while block b-1 travels between them, and copied out while block b+1 does.
  Task Run() {
    for (size_t b = 0; b <= blocks_; ++b) {
      if (b < blocks_) HVD_CO_TRY(co_await ReduceInside(b));
      if (network_ != nullptr) {
        HVD_CO_TRY(co_await network_->Finish());
        network_.reset();
      }
      if (b < blocks_ && roles_.owner()) StartBetween(b);
      if (b > 0) HVD_CO_TRY(co_await GatherInside(b - 1));
    }
    if (steps_) steps_->view().Finish();
    co_return Status();
  }

 private:
  // Part of an owner in a block, in bytes.
  channels::Range Part(size_t block, int owner) const {
    const channels::Range whole =
        channels::PartOf(ranges_.total() / unit_, static_cast<int>(blocks_), static_cast<int>(block));
    const channels::Range part = channels::PartOf(whole.size(), roles_.owners, owner);
    return {(whole.begin + part.begin) * unit_, (whole.begin + part.end) * unit_};
  }
  static channels::Range Chunk(const channels::Range& part, size_t c, size_t bytes) {
    const size_t begin = std::min(part.end, part.begin + c * bytes);
    return {begin, std::min(part.end, begin + bytes)};
  }
  size_t lane_offset(int source, int owner) const {
    return lane_bytes_ * (lanes_ < roles_.owners && owner > source ? owner - 1 : owner);
  }
  size_t rounds(size_t block, size_t bytes) const { return (Part(block, 0).size() + bytes - 1) / bytes; }

  // The network goes on between two rounds. Its failure is kept until the next Finish would meet it.
  void Pump() {
    if (network_ == nullptr || !pumped_.ok()) return;
    size_t moved = 0;
    pumped_ = network_->Advance(&moved);
  }

  Task StagesDrained() {
    if (steps_->taken() > 0) HVD_CO_TRY(co_await steps_->view().AllReached(steps_->taken()));
    co_return Status();
  }

  // Output of the own part = combination of the members of this host, in member order.
  Task ReduceInside(size_t b) {
    if (!steps_) co_return co_await OwnOnly(b);
    const auto fill = [this, b](size_t c, std::byte* piece) {
      for (int o = 0; o < roles_.owners; ++o) {
        if (o == roles_.me) continue;
        const channels::Range chunk = Chunk(Part(b, o), c, lane_bytes_);
        ranges_.Gather(chunk.begin, chunk.end, piece + lane_offset(roles_.me, o), mode_);
      }
    };
    const auto drain = [this, b](size_t c) {
      if (roles_.owner()) CombineChunk(Chunk(Part(b, roles_.me), c, lane_bytes_), c);
      Pump();
    };
    HVD_CO_TRY(co_await StagesDrained());
    HVD_CO_TRY(co_await shm::StreamPieces(*steps_, rounds(b, lane_bytes_), shm::kPieceBytes, fill, drain));
    co_return pumped_;
  }

  void CombineChunk(const channels::Range& chunk, size_t c) {
    transport::LocalView& view = steps_->view();
    ranges_.ForEach(chunk.begin, chunk.end, [&](const std::byte* in, std::byte* out, size_t bytes, size_t at) {
      shm::PointerList<const void*> srcs(roles_.locals);
      for (int m = 0; m < roles_.locals; ++m) {
        srcs[m] = m == roles_.me ? in : shm::PieceOf(view, m, c) + lane_offset(m, roles_.me) + (at - chunk.begin);
      }
      void* dst = out;
      kernels::Reduce(
          {batch_.dtype, batch_.op, {batch_.prescale, 1.0}, srcs.data(), roles_.locals, &dst, 1, bytes / unit_});
    });
  }

  // The only member of its host.
  Task OwnOnly(size_t b) {
    const channels::Range part = Part(b, 0);
    const size_t rounds = (part.size() + shm::kPieceBytes - 1) / shm::kPieceBytes;
    for (size_t c = 0; c < rounds; ++c) {
      const channels::Range chunk = Chunk(part, c, shm::kPieceBytes);
      ranges_.ForEach(chunk.begin, chunk.end, [&](const std::byte* in, std::byte* out, size_t bytes, size_t) {
        const void* src = in;
        void* dst = out;
        kernels::Reduce({batch_.dtype, batch_.op, {batch_.prescale, 1.0}, &src, 1, &dst, 1, bytes / unit_});
      });
      Pump();
      co_await Yield();
    }
    co_return pumped_;
  }

  void StartBetween(size_t b) {
    const channels::Range part = Part(b, roles_.me);
    channels::PlanRun::Work work;
    work.unit_bytes = unit_;
    output_.Visit(part.begin, part.size(), [&](std::byte* data, size_t bytes) {
      work.input.Add(data, bytes);
      work.output.Add(data, bytes);
    });
    work.plan = channels::PlanAllreduce(
        channels::ShapeOf(roles_.hosts, roles_.across.index, part.size() / unit_, unit_), unit_);
    work.dtype = batch_.dtype;
    work.op = batch_.op;
    work.last_factor = batch_.postscale;
    work.seq = batch_.seq;
    work.round = static_cast<uint32_t>(b);
    network_ =
        std::make_unique<channels::PlanRun>(roles_.across, std::move(work), &group_.scratch, &batch_.waiting_for);
    Pump();
  }

  // The owners' parts of a finished block to all members of this host.
  Task GatherInside(size_t b) {
    if (!steps_) co_return pumped_;
    const auto fill = [this, b](size_t c, std::byte* piece) {
      if (!roles_.owner()) return;
      const channels::Range chunk = Chunk(Part(b, roles_.me), c, shm::kPieceBytes);
      output_.Visit(chunk.begin, chunk.size(), [&](const std::byte* data, size_t bytes) {
        kernels::Copy(piece, data, bytes, mode_);
        piece += bytes;
      });
    };
    const auto drain = [this, b](size_t c) {
      for (int o = 0; o < roles_.owners; ++o) {
        if (o == roles_.me) continue;
        const channels::Range chunk = Chunk(Part(b, o), c, shm::kPieceBytes);
        ranges_.Scatter(chunk.begin, chunk.end, shm::PieceOf(steps_->view(), o, c));
      }
      Pump();
    };
    HVD_CO_TRY(co_await StagesDrained());
    HVD_CO_TRY(co_await shm::StreamPieces(*steps_, rounds(b, shm::kPieceBytes), shm::kPieceBytes, fill, drain));
    co_return pumped_;
  }

  const Group& group_;
  Batch& batch_;
  const Roles roles_;
  const size_t unit_;
  shm::Ranges ranges_;       // inputs and outputs, for the work inside the host
  channels::Pieces output_;  // outputs, for the network
  size_t blocks_ = 1;
  int lanes_ = 1;
  size_t lane_bytes_ = 0;
  StoreMode mode_ = StoreMode::kOrdinary;
  std::optional<shm::Steps> steps_;  // none: alone on this host
  std::unique_ptr<channels::PlanRun> network_;
  Status pumped_;
};

}  // namespace

bool TwoLevelApplies(const Group& group) {
  std::vector<int> hosts = group.host_of;
  std::sort(hosts.begin(), hosts.end());
  const auto different = std::unique(hosts.begin(), hosts.end()) - hosts.begin();
  return different > 1 && different < group.size();
}

// h hosts, l members on this host, k owners (the size of the smallest host), B bytes. Inside: reduce-scatter and
// allgather through the stages (StreamPieces), about 4 B moved per member. Between: every owner runs an allreduce of
// its B/k with its counterparts, 2 (h-1)/h B/k bytes sent per owner; the network of a host carries 2 (h-1)/h B in all,
// and k flows share it. Steps: those of PlanAllreduce for h, per block. Memory: the stages and two segments. Idea: Jia
// et al. 2018 (hierarchical allreduce), with the parts of Patarasuk and Yuan 2009. Invariants: an owner's part is
// combined inside a host in member order by one member, then between hosts by a plan that gives equal bits; nobody else
// combines it. No wait inside a host depends on the network but Finish(), and all members do the phases in the same
// order; so the earliest unfinished phase can always go on. A phase uses the stages only after all members have drained
// the last one (AllReached).
Task TwoLevelAllreduce(const Group& group, Batch& batch) {
  if (group.one_host()) co_return co_await shm::Allreduce(group, batch);
  TwoLevel work(group, batch);
  co_return co_await work.Run();
}

}  // namespace hvd::collective
