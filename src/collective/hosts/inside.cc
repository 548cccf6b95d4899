#include "collective/hosts/inside.h"

#include <algorithm>
#include <cstring>

#include "collective/kernels/kernels.h"
#include "collective/shm/lanes.h"

namespace hvd::collective::hosts {
namespace {

size_t LongestOf(const std::vector<shm::Ranges>& parts) {
  size_t longest = 0;
  for (const shm::Ranges& part : parts) longest = std::max(longest, part.total());
  return longest;
}

std::vector<bool> SourcesOf(const std::vector<shm::Ranges>& places) {
  std::vector<bool> sources;
  sources.reserve(places.size());
  for (const shm::Ranges& place : places) sources.push_back(place.total() > 0);
  return sources;
}

size_t RoundsOf(size_t longest, size_t bytes) { return (longest + bytes - 1) / bytes; }

}  // namespace

shm::Ranges RangesOf(const Batch& batch) {
  shm::Ranges ranges;
  for (const Tensor& t : batch.tensors) ranges.Add(t.input, t.output, t.elems * SizeOf(batch.dtype));
  return ranges;
}

// In Reduce, an owner stages for the other owners; where some members own nothing, they stage for all of them.
Inside::Inside(const Group& group, Batch& batch, const Roles& roles, Between& between, size_t bytes)
    : batch_(batch), roles_(roles), between_(between) {
  if (group.local != nullptr) steps_.emplace(group, batch.seq);
  lanes_ = roles.locals() > roles.owners ? roles.owners : std::max(1, roles.owners - 1);
  lane_bytes_ = shm::kPieceBytes / lanes_ / shm::kShareAlign * shm::kShareAlign;
  mode_ = UnmeasuredStores(group, bytes);
}

// The stages are free for the next stream when all members have drained the last one. `sources`: members that have
// something for this one. A single round waits for these only, so that a member that sends and receives nothing
// continues at once.
template <class Fill, class Drain>
Task Inside::Stream(size_t rounds, std::vector<bool> sources, Fill fill, Drain drain) {
  transport::LocalView& view = steps_->view();
  if (steps_->taken() > 0) HVD_CO_TRY(co_await view.AllReached(steps_->taken()));
  if (rounds == 1) {
    HVD_CO_TRY(co_await shm::AcquireStages(*steps_));
    fill(0, shm::PieceOf(view, roles_.me, 0));
    steps_->Take(1);
    view.Publish(steps_->taken());
    for (int m = 0; m < static_cast<int>(sources.size()); ++m) {
      if (sources[m] && m != roles_.me) HVD_CO_TRY(co_await view.Reached(m, steps_->taken()));
    }
    drain(0);
    steps_->Take(1);
    view.Publish(steps_->taken());
    between_.Pump();
    co_return between_.status();
  }
  HVD_CO_TRY(co_await shm::StreamPieces(*steps_, rounds, shm::kPieceBytes, std::move(fill), [&](size_t c) {
    drain(c);
    between_.Pump();
  }));
  co_return between_.status();
}

Task Inside::Reduce(const std::vector<shm::Ranges>& parts) {
  if (alone()) co_return co_await ReduceAlone(parts[0]);
  const auto fill = [&](size_t c, std::byte* piece) {
    for (int o = 0; o < roles_.owners; ++o) {
      if (o == roles_.me) continue;
      const size_t begin = std::min(parts[o].total(), c * lane_bytes_),
                   end = std::min(parts[o].total(), begin + lane_bytes_);
      parts[o].Gather(begin, end, piece + lane_offset(roles_.me, o), mode_);
    }
  };
  const auto drain = [&](size_t c) {
    if (!roles_.owner()) return;
    const shm::Ranges& own = parts[roles_.me];
    const size_t begin = std::min(own.total(), c * lane_bytes_);
    Combine(own, begin, std::min(own.total(), begin + lane_bytes_), c);
  };
  std::vector<bool> sources(roles_.owner() ? roles_.locals() : 0, true);
  co_return co_await Stream(RoundsOf(LongestOf(parts), lane_bytes_), std::move(sources), fill, drain);
}

void Inside::Combine(const shm::Ranges& part, size_t begin, size_t end, size_t c) {
  const int locals = roles_.locals();
  part.ForEach(begin, end, [&](const std::byte* in, std::byte* out, size_t bytes, size_t at) {
    shm::PointerList<const void*> srcs(locals);
    for (int m = 0; m < locals; ++m) {
      srcs[m] = m == roles_.me ? in : shm::PieceOf(steps_->view(), m, c) + lane_offset(m, roles_.me) + (at - begin);
    }
    void* dst = out;
    kernels::Reduce(
        {batch_.dtype, batch_.op, {batch_.prescale, 1.0}, srcs.data(), locals, &dst, 1, bytes / SizeOf(batch_.dtype)});
  });
}

Task Inside::ReduceAlone(const shm::Ranges& part) {
  for (size_t begin = 0; begin < part.total(); begin += shm::kPieceBytes) {
    const size_t end = std::min(part.total(), begin + shm::kPieceBytes);
    part.ForEach(begin, end, [&](const std::byte* in, std::byte* out, size_t bytes, size_t) {
      const void* src = in;
      void* dst = out;
      kernels::Reduce(
          {batch_.dtype, batch_.op, {batch_.prescale, 1.0}, &src, 1, &dst, 1, bytes / SizeOf(batch_.dtype)});
    });
    between_.Pump();
    co_await Yield();
  }
  co_return between_.status();
}

Task Inside::Share(const shm::Ranges& mine, const std::vector<shm::Ranges>& places) {
  if (alone()) co_return between_.status();
  const auto fill = [&](size_t c, std::byte* piece) {
    const size_t begin = std::min(mine.total(), c * shm::kPieceBytes);
    mine.Gather(begin, std::min(mine.total(), begin + shm::kPieceBytes), piece, mode_);
  };
  const auto drain = [&](size_t c) {
    for (int m = 0; m < static_cast<int>(places.size()); ++m) {
      if (m == roles_.me) continue;
      const size_t begin = std::min(places[m].total(), c * shm::kPieceBytes);
      const size_t end = std::min(places[m].total(), begin + shm::kPieceBytes);
      places[m].Scatter(begin, end, shm::PieceOf(steps_->view(), m, c));
    }
  };
  co_return co_await Stream(RoundsOf(LongestOf(places), shm::kPieceBytes), SourcesOf(places), fill, drain);
}

Task Inside::Exchange(const std::vector<shm::Ranges>& out, const std::vector<shm::Ranges>& in, size_t longest) {
  if (alone()) co_return between_.status();
  const int me = roles_.me;
  const shm::Lanes lanes(roles_.locals());
  const auto fill = [&](size_t c, std::byte* piece) {
    for (int d = 0; d < roles_.locals(); ++d) {
      const size_t total = out[d].total();
      if (d != me) out[d].Gather(lanes.begin(total, c), lanes.end(total, c), piece + lanes.offset(me, d), mode_);
    }
  };
  const auto drain = [&](size_t c) {
    for (int m = 0; m < roles_.locals(); ++m) {
      const size_t total = in[m].total();
      if (m == me) continue;
      in[m].Scatter(lanes.begin(total, c), lanes.end(total, c),
                    shm::PieceOf(steps_->view(), m, c) + lanes.offset(m, me));
    }
  };
  co_return co_await Stream(lanes.rounds(longest), SourcesOf(in), fill, drain);
}

Task Inside::Blobs(const std::byte* mine, size_t bytes, std::byte* all) {
  if (!alone()) co_return co_await shm::ExchangeBlobs(*steps_, mine, bytes, all);
  if (bytes > 0) std::memcpy(all, mine, bytes);
  co_return Status();
}

}  // namespace hvd::collective::hosts
