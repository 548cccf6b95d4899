// Two-level alltoall; see collectives.h.
#include "collective/channels/own.h"
#include "collective/hosts/collectives.h"
#include "collective/hosts/inside.h"
#include "collective/hosts/splits.h"
#include "collective/shm/collectives.h"

namespace hvd::collective::hosts {
namespace {

class AlltoallWork {
 public:
  AlltoallWork(const Group& group, Batch& batch)
      : batch_(batch),
        group_(group),
        roles_(RolesOf(group)),
        splits_(batch, roles_, group.size()),
        between_(group, batch),
        inside_(group, batch, roles_, between_, BytesOf(batch)) {}

  Task Run() {
    HVD_CO_TRY(co_await splits_.Agree(between_, inside_));
    HVD_CO_TRY(PlaceResults());
    if (splits_.PaysToForward()) {
      HVD_CO_TRY(co_await Forward());
    } else {
      HVD_CO_TRY(co_await Direct());
    }
    inside_.Finish();
    co_return Status();
  }

 private:
  static size_t BytesOf(const Batch& batch) {
    size_t bytes = 0;
    for (const Tensor& t : batch.tensors) bytes += t.elems * SizeOf(batch.dtype);
    return bytes;
  }
  const std::vector<int>& here() const { return roles_.members[roles_.host]; }

  Status PlaceResults() {
    to_.resize(group_.size());
    from_.resize(group_.size());
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      Tensor& t = batch_.tensors[i];
      t.received_rows = splits_.ReceivedRows(i);
      HVD_TRY(channels::PlaceRows(batch_, t, t.received_rows));
      const std::byte* in = t.input;
      std::byte* out = t.output;
      for (int m = 0; m < group_.size(); ++m) {
        const size_t sent = static_cast<size_t>(t.splits[m]) * splits_.row_bytes(i);
        const size_t received = static_cast<size_t>(t.received_rows[m]) * splits_.row_bytes(i);
        to_[m].Add(in, nullptr, sent);
        from_[m].Add(nullptr, out, received);
        if (m == group_.index) own_.Add(in, out, sent);
        in += sent;
        out += received;
      }
    }
    return Status();
  }

  // Between the members of this host: their own blocks, and what the owners are to forward behind them.
  Task ExchangeInside(bool forwards) {
    const int locals = roles_.locals(), me = roles_.me;
    size_t longest = 0;
    for (int i = 0; i < locals; ++i) {
      for (int d = 0; d < locals; ++d) {
        if (d == i) continue;
        size_t bytes = splits_.bytes(i, here()[d]);
        for (int h = 0; forwards && d < roles_.owners && h < roles_.hosts(); ++h)
          bytes += h == roles_.host ? 0 : splits_.forwarded_bytes(i, d, h);
        longest = std::max(longest, bytes);
      }
    }
    std::vector<shm::Ranges> out(locals), in(locals);
    for (int d = 0; d < locals; ++d) {
      out[d].Append(to_[here()[d]]);
      in[d].Append(from_[here()[d]]);
      if (!forwards || d == me) continue;
      if (d < roles_.owners) AppendForwarded(&out[d], d);
      if (roles_.owner()) in[d].Append(arrived_[d]);
    }
    HVD_CO_TRY(co_await inside_.Exchange(out, in, longest));
    own_.CopyOver(0, own_.total(), StoreMode::kOrdinary);
    co_return between_.status();
  }
  void AppendForwarded(shm::Ranges* to, int owner) const {
    for (int h = 0; h < roles_.hosts(); ++h) {
      for (int w = 0; h != roles_.host && w < splits_.wards(h, owner); ++w) to->Append(to_[splits_.ward(h, owner, w)]);
    }
  }

  Task Direct() {
    const channels::Team team = channels::TeamOf(group_);
    channels::PlanRun::Work work;
    std::vector<channels::Range> sends, receives;
    for (const int member : team.member) {
      const size_t sent = work.input.bytes(), received = work.output.bytes();
      if (group_.host_of[member] != group_.host_of[group_.index]) {
        AddInputs(&work.input, to_[member]);
        AddOutputs(&work.output, from_[member]);
      }
      sends.push_back({sent, work.input.bytes()});
      receives.push_back({received, work.output.bytes()});
    }
    work.plan = channels::PairwiseExchange(
        channels::ShapeOf(team.size(), team.index, work.input.bytes(), 1, channels::kMovedSegmentBytes), sends,
        receives);
    between_.Start(team, std::move(work));
    HVD_CO_TRY(co_await ExchangeInside(false));
    co_return co_await between_.Finish();
  }

  Task Forward() {
    if (roles_.owner()) HVD_CO_TRY(TakeMemory());
    HVD_CO_TRY(co_await ExchangeInside(true));
    if (roles_.owner()) {
      StartForwarding();
      HVD_CO_TRY(co_await between_.Finish());
    }
    if (roles_.locals() > roles_.owners) HVD_CO_TRY(co_await HandOver());
    co_return Status();
  }

  // For what the others of this host give this owner to forward, and for what arrives for its wards but itself.
  Status TakeMemory() {
    size_t forwarded = 0, held = 0;
    for (int h = 0; h < roles_.hosts(); ++h) {
      if (h == roles_.host) continue;
      for (int i = 0; i < roles_.locals(); ++i)
        forwarded += i == roles_.me ? 0 : splits_.forwarded_bytes(i, roles_.me, h);
      held += HeldBytes(roles_.me, h);
    }
    memory_.emplace(forwarded + held);
    if (memory_->data == nullptr) return OutOfMemory();
    held_ = memory_->data + forwarded;
    arrived_.resize(roles_.locals());
    std::byte* at = memory_->data;
    for (int i = 0; i < roles_.locals(); ++i) {
      for (int h = 0; i != roles_.me && h < roles_.hosts(); ++h) {
        const size_t bytes = h == roles_.host ? 0 : splits_.forwarded_bytes(i, roles_.me, h);
        arrived_[i].Add(at, at, bytes);
        at += bytes;
      }
    }
    return Status();
  }
  size_t HeldBytes(int owner, int host) const {
    size_t bytes = 0;
    for (int i = 0; i < roles_.locals_of(host); ++i) {
      for (int w = 1; w < splits_.wards(roles_.host, owner); ++w) bytes += splits_.arriving_bytes(owner, host, i, w);
    }
    return bytes;
  }

  // For every other host, what the members of this one have for the counterpart's wards; and the same from there.
  void StartForwarding() {
    channels::PlanRun::Work work;
    std::vector<channels::Range> sends, receives;
    std::vector<size_t> done(roles_.locals(), 0);
    std::byte* held = held_;
    for (int h = 0; h < roles_.hosts(); ++h) {
      const size_t sent = work.input.bytes(), received = work.output.bytes();
      for (int i = 0; h != roles_.host && i < roles_.locals(); ++i) {
        shm::Ranges part;
        if (i == roles_.me) {
          for (int w = 0; w < splits_.wards(h, roles_.me); ++w) part.Append(to_[splits_.ward(h, roles_.me, w)]);
        } else {
          const size_t bytes = splits_.forwarded_bytes(i, roles_.me, h);
          part.AppendPart(arrived_[i], done[i], done[i] + bytes);
          done[i] += bytes;
        }
        AddInputs(&work.input, part);
      }
      for (int i = 0; h != roles_.host && i < roles_.locals_of(h); ++i) {
        AddOutputs(&work.output, from_[roles_.members[h][i]]);
        for (int w = 1; w < splits_.wards(roles_.host, roles_.me); ++w) {
          const size_t bytes = splits_.arriving_bytes(roles_.me, h, i, w);
          work.output.Add(held, bytes);
          held += bytes;
        }
      }
      sends.push_back({sent, work.input.bytes()});
      receives.push_back({received, work.output.bytes()});
    }
    work.plan = channels::PairwiseExchange(
        channels::ShapeOf(roles_.hosts(), roles_.host, work.input.bytes(), 1, channels::kMovedSegmentBytes), sends,
        receives);
    between_.Start(roles_.across, std::move(work));
  }

  // From the owners to their wards, in the order in which it arrived.
  Task HandOver() {
    shm::Ranges mine;
    std::vector<shm::Ranges> places(roles_.owners);
    for (int o = 0; o < roles_.owners; ++o) {
      for (int h = 0; h < roles_.hosts(); ++h) {
        for (int i = 0; h != roles_.host && i < roles_.locals_of(h); ++i) {
          for (int w = 1; w < splits_.wards(roles_.host, o); ++w) {
            if (splits_.ward(roles_.host, o, w) == group_.index) {
              places[o].Append(from_[roles_.members[h][i]]);
            } else {
              places[o].Add(nullptr, nullptr, splits_.arriving_bytes(o, h, i, w));
            }
          }
        }
      }
    }
    if (roles_.owner()) mine.Add(held_, nullptr, places[roles_.me].total());
    co_return co_await inside_.Share(mine, places);
  }

  static void AddInputs(channels::Pieces* to, const shm::Ranges& ranges) {
    ranges.ForEach(0, ranges.total(),
                   [to](const std::byte* in, std::byte*, size_t bytes, size_t) { to->Add(in, bytes); });
  }
  static void AddOutputs(channels::Pieces* to, const shm::Ranges& ranges) {
    ranges.ForEach(0, ranges.total(),
                   [to](const std::byte*, std::byte* out, size_t bytes, size_t) { to->Add(out, bytes); });
  }

  Batch& batch_;
  const Group& group_;
  const Roles roles_;
  Splits splits_;
  Between between_;
  Inside inside_;
  std::vector<shm::Ranges> to_, from_;  // by member: inputs for it, outputs from it
  shm::Ranges own_;                     // for itself
  std::optional<Block> memory_;         // of an owner that forwards
  std::byte* held_ = nullptr;
  std::vector<shm::Ranges> arrived_;  // by local member: what it gave to be forwarded
};

}  // namespace

// B: what a member sends. Splits first (Splits::Agree). Then one of two ways, the same on all members:
//   forwarded  Little per pair. Inside, a member gives what it has for local index j of any host to owner j mod k of
//              its own; between, owners exchange with their counterparts; where there are more members than owners,
//              those hand over what came for others. h-1 messages per owner (direct: n-l per member) and connections to
//              h-1 members only. Moved inside: 4 B, and handed over once more. Memory: what an owner forwards, B
//              (h-1)/h of equal members, at most 64 MB of others.
//   direct     Every member exchanges with all members of other hosts, n-l messages straight from inputs to results,
//              while the blocks of this host go through the stages. No memory.
// Bytes between: what the splits say, both ways. Steps: h-1 or n-l, all in flight (PairwiseExchange). Source: Kumar,
// Sabharwal, Garg, Heidelberger 2008 (alltoall on multi-core clusters). Invariant: both sides of a message know its
// length and order from the splits: sender, ward, tensor.
Task Alltoall(const Group& group, Batch& batch) {
  if (group.one_host()) co_return co_await shm::Alltoall(group, batch);
  AlltoallWork work(group, batch);
  co_return co_await work.Run();
}

}  // namespace hvd::collective::hosts
