#include "two_level.h"

#include <algorithm>
#include <numeric>

#include "collective/hosts/roles.h"

namespace hvd::simulate {
namespace {

using collective::SlicesFor;
using collective::channels::PartOf;
using collective::channels::Plan;
using collective::channels::Range;
using collective::channels::ShapeOf;
using collective::hosts::OwnersFor;
using PlanMaker = std::function<Plan()>;

// Of collective/hosts: broadcasts of fewer bytes among few ranks go by a tree over all; an alltoall is forwarded by the
// owners up to so many bytes for each pair of ranks; so many numbers go with its splits.
constexpr size_t kSmallBroadcast = 64 << 10, kForwarded = 16 << 10, kFacts = 2;
constexpr int kFewLocals = 4;

size_t Slice(size_t units, size_t slices, size_t b) {
  return PartOf(units, static_cast<int>(slices), static_cast<int>(b)).size();
}

// Where a rank is. Plans are made when they begin, so they hold one of their own.
struct Place {
  Layout layout;
  int host, me;

  collective::channels::Shape ShapeFor(size_t units, size_t unit_bytes) const {
    return ShapeOf(layout.hosts, host, units, unit_bytes);
  }
  // So much for every counterpart.
  Plan Exchange(size_t each) const {
    const std::vector<Range> blocks = EqualBlocks(each * static_cast<size_t>(layout.hosts), layout.hosts);
    return PairwiseExchange(ShapeFor(each * static_cast<size_t>(layout.hosts), 1), blocks, blocks);
  }
  // So much for every rank of another host.
  Plan Direct(size_t each) const {
    std::vector<Range> blocks;
    size_t at = 0;
    for (int r = 0; r < layout.size(); ++r) {
      const size_t bytes = layout.host_of(r) == host ? 0 : each;
      blocks.push_back({at, at + bytes});
      at += bytes;
    }
    return PairwiseExchange(
        ShapeOf(layout.size(), host * layout.locals + me, at, 1, collective::channels::kMovedSegmentBytes), blocks,
        blocks);
  }
};

class Builder {
 public:
  Builder(const Place& place, const Costs& costs) : place_(place), costs_(costs) {
    auto ranks = std::make_shared<std::vector<int>>();
    for (int h = 0; h < place.layout.hosts; ++h) ranks->push_back(h * place.layout.locals + place.me);
    counterparts_ = std::move(ranks);
  }

  // So many bytes through the stages of a host: each is stored once and read by whoever needs it.
  void Inside(size_t bytes) {
    program_.push_back(simulate::Inside(costs_.inside_s + static_cast<double>(bytes) * costs_.inside_s_per_byte / 2));
  }
  void Begin(size_t unit_bytes, PlanMaker plan) {
    program_.push_back(simulate::Begin(counterparts_, unit_bytes, std::move(plan)));
  }
  void BeginWithAll(PlanMaker plan) {
    auto all = std::make_shared<std::vector<int>>(place_.layout.size());
    std::iota(all->begin(), all->end(), 0);
    program_.push_back(simulate::Begin(std::move(all), 1, std::move(plan)));
  }
  void Await() { program_.push_back(simulate::Await()); }
  // As hosts::Pipelined.
  template <class Prepare, class Start, class HandOn>
  void Pipelined(size_t slices, Prepare prepare, Start start, HandOn hand_on) {
    for (size_t b = 0; b <= slices; ++b) {
      if (b < slices) prepare(b);
      Await();
      if (b < slices) start(b);
      if (b > 0) hand_on(b - 1);
    }
  }
  Program Take() { return std::move(program_); }

 private:
  const Place place_;
  const Costs costs_;
  Team counterparts_;
  Program program_;
};

void Allreduce(size_t bytes, const Place& place, Builder& to) {
  const size_t units = bytes / kUnit, owners = static_cast<size_t>(place.layout.locals);
  const size_t slices = SlicesFor((bytes + owners - 1) / owners);
  const auto inside = [&](size_t b) { to.Inside(Slice(units, slices, b) * kUnit); };
  const auto start = [&](size_t b) {
    to.Begin(kUnit, [=] {
      const size_t part = PartOf(Slice(units, slices, b), place.layout.locals, place.me).size();
      return PlanAllreduce(place.ShapeFor(part, kUnit), kUnit, place.layout.locals);
    });
  };
  to.Pipelined(slices, inside, start, inside);
}

void Reducescatter(size_t bytes, const Place& place, Builder& to) {
  const size_t units = bytes / kUnit;
  const auto block = [=](int host) {
    return PartOf(units, place.layout.size(), host * place.layout.locals + place.me).size();
  };
  const size_t longest = PartOf(units, place.layout.size(), 0).size();
  const size_t slices = SlicesFor(longest * kUnit * static_cast<size_t>(place.layout.hosts));
  const auto start = [&](size_t b) {
    to.Begin(kUnit, [=] {
      std::vector<Range> sends;
      size_t at = 0;
      for (int h = 0; h < place.layout.hosts; ++h) {
        const size_t part = Slice(block(h), slices, b);
        sends.push_back({at, at + part});
        at += part;
      }
      return PairwiseReduce(place.ShapeFor(at, kUnit), sends);
    });
  };
  to.Pipelined(slices, [&](size_t) { to.Inside(bytes / slices); }, start, [](size_t) {});
}

// From rank 0.
void Broadcast(size_t bytes, const Place& place, Builder& to) {
  const int owners = std::clamp(OwnersFor(bytes), 1, place.layout.locals);
  const size_t slices = collective::SlicesOfChain(bytes / static_cast<size_t>(owners), place.layout.hosts);
  const bool on_roots_host = place.host == 0, has_it = on_roots_host && place.me == 0 && slices == 1;
  const auto begin = [&](size_t b) {
    to.Begin(1, [=] {
      const size_t part = PartOf(Slice(bytes, slices, b), owners, place.me).size();
      return PlanBroadcast(place.ShapeFor(part, 1), 0, 1, owners);
    });
  };
  if (has_it) begin(0);
  const auto inside = [&](bool here, size_t b) {
    if (here) to.Inside(Slice(bytes, slices, b));
  };
  const auto start = [&](size_t b) {
    if (place.me < owners && !has_it) begin(b);
  };
  to.Pipelined(
      slices, [&](size_t b) { inside(on_roots_host, b); }, start, [&](size_t b) { inside(!on_roots_host, b); });
}

void Allgather(size_t bytes, const Place& place, Builder& to) {
  const auto hosts = static_cast<size_t>(place.layout.hosts), locals = static_cast<size_t>(place.layout.locals);
  to.Inside(0);
  to.Begin(1, [=] {
    const size_t rows = locals * kSizeBytes;
    return AllgatherBruck(place.ShapeFor(hosts * rows, 1), EqualStarts(rows, place.layout.hosts));
  });
  to.Await();
  const size_t total = bytes * hosts * locals;
  const int owners = std::clamp(OwnersFor(total), 1, place.layout.locals);
  const size_t slices = SlicesFor(total / static_cast<size_t>(owners));
  const auto start = [&](size_t b) {
    if (place.me >= owners) return;
    to.Begin(1, [=] {
      const size_t part = PartOf(locals * Slice(bytes, slices, b), owners, place.me).size();
      return PlanAllgather(collective::channels::MovedShape(place.layout.hosts, place.host, hosts * part),
                           EqualStarts(part, place.layout.hosts));
    });
  };
  to.Pipelined(
      slices, [&](size_t b) { to.Inside(locals * Slice(bytes, slices, b)); }, start,
      [&](size_t b) { to.Inside((hosts - 1) * locals * Slice(bytes, slices, b)); });
}

void Alltoall(size_t bytes, const Place& place, Builder& to) {
  const auto locals = static_cast<size_t>(place.layout.locals);
  const size_t each = bytes / static_cast<size_t>(place.layout.size());
  to.Inside(0);
  to.Begin(kSizeBytes, [=] { return place.Exchange(kFacts + locals); });
  to.Await();
  if (each <= kForwarded) {
    to.Inside(bytes);
    to.Begin(1, [=] { return place.Exchange(each * locals); });
  } else {
    to.BeginWithAll([=] { return place.Direct(each); });
    to.Inside(each * locals);
  }
  to.Await();
}

}  // namespace

bool TwoLevelPays(const std::string& operation, size_t bytes, const Layout& layout) {
  if (operation == "broadcast") return layout.locals > kFewLocals || bytes > kSmallBroadcast;
  return operation != "barrier";
}

Program TwoLevel(const std::string& operation, size_t bytes, const Layout& layout, int rank, const Costs& costs) {
  const Place place{layout, layout.host_of(rank), rank % layout.locals};
  Builder to(place, costs);
  if (operation == "allreduce") Allreduce(bytes, place, to);
  if (operation == "reducescatter") Reducescatter(bytes, place, to);
  if (operation == "broadcast") Broadcast(bytes, place, to);
  if (operation == "allgather") Allgather(bytes, place, to);
  if (operation == "alltoall") Alltoall(bytes, place, to);
  return to.Take();
}

}  // namespace hvd::simulate
