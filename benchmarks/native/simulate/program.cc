#include "program.h"

#include <numeric>
#include <utility>

#include "collective/slices.h"

namespace hvd::simulate {
namespace {

using collective::channels::PartOf;
using collective::channels::Plan;
using collective::channels::Range;
using collective::channels::Shape;
using collective::channels::ShapeOf;
using Team = std::shared_ptr<const std::vector<int>>;

constexpr size_t kUnit = 4;       // float32
constexpr size_t kSizeBytes = 8;  // of the number of rows that goes ahead

Step Inside(double seconds) { return {Step::kInside, seconds}; }
Step Begin(Team team, size_t unit_bytes, std::function<Plan()> plan) {
  return {Step::kBegin, 0, std::move(plan), std::move(team), unit_bytes};
}
Step Await() { return {}; }

std::vector<Range> Blocks(size_t units, int n) {
  std::vector<Range> blocks;
  for (int i = 0; i < n; ++i) blocks.push_back(PartOf(units, n, i));
  return blocks;
}

std::vector<size_t> Starts(size_t bytes, int n) {
  std::vector<size_t> starts;
  for (int i = 0; i <= n; ++i) starts.push_back(static_cast<size_t>(i) * bytes);
  return starts;
}

Program TwoLevelAllreduce(size_t bytes, const Layout& layout, int rank, const Costs& costs) {
  const int me = rank % layout.locals, host = layout.host_of(rank);
  auto counterparts = std::make_shared<std::vector<int>>();
  for (int h = 0; h < layout.hosts; ++h) counterparts->push_back(h * layout.locals + me);
  const size_t units = bytes / kUnit;
  const auto owners = static_cast<size_t>(layout.locals);
  const size_t slices = collective::SlicesFor((bytes + owners - 1) / owners);
  const auto slice = [=](size_t b) { return PartOf(units, static_cast<int>(slices), static_cast<int>(b)).size(); };
  const auto inside = [&](size_t b) {
    if (layout.locals == 1) return static_cast<double>(slice(b) * kUnit) * costs.copy_s_per_byte;
    return costs.inside_s + static_cast<double>(slice(b) * kUnit) * costs.inside_s_per_byte / 2;
  };
  Program program;
  for (size_t b = 0; b <= slices; ++b) {
    if (b < slices) program.push_back(Inside(inside(b)));
    program.push_back(Await());
    if (b < slices) {
      program.push_back(Begin(counterparts, kUnit, [=] {
        const size_t part = PartOf(slice(b), layout.locals, me).size();
        return PlanAllreduce(ShapeOf(layout.hosts, host, part, kUnit), kUnit, layout.locals);
      }));
    }
    if (b > 0 && layout.locals > 1) program.push_back(Inside(inside(b - 1)));
  }
  return program;
}

}  // namespace

const std::vector<std::string>& Operations() {
  static const std::vector<std::string> all = {"allreduce",     "allgather", "broadcast",
                                               "reducescatter", "alltoall",  "barrier"};
  return all;
}

Program ProgramOf(const std::string& operation, size_t bytes, const Layout& layout, int rank, bool two_level,
                  const Costs& costs) {
  const int n = layout.size();
  if (n == 1) return {};
  if (two_level && operation == "allreduce") return TwoLevelAllreduce(bytes, layout, rank, costs);
  auto everybody = std::make_shared<std::vector<int>>(n);
  std::iota(everybody->begin(), everybody->end(), 0);
  const Shape whole = ShapeOf(n, rank, bytes, 1), elements = ShapeOf(n, rank, bytes / kUnit, kUnit);
  const auto begin = [&](size_t unit, std::function<Plan()> plan) { return Begin(everybody, unit, std::move(plan)); };
  if (operation == "allreduce") return {begin(kUnit, [=] { return PlanAllreduce(elements, kUnit); }), Await()};
  if (operation == "broadcast") return {begin(1, [=] { return PlanBroadcast(whole, 0, 1); }), Await()};
  if (operation == "barrier") return {begin(1, [=] { return Dissemination(ShapeOf(n, rank, 1, 1)); }), Await()};
  if (operation == "reducescatter")
    return {begin(kUnit, [=] { return PairwiseReduce(elements, Blocks(elements.units, n)); }), Await()};
  if (operation == "allgather") {
    const auto all = static_cast<size_t>(n);
    return {begin(1, [=] { return AllgatherBruck(ShapeOf(n, rank, all * kSizeBytes, 1), Starts(kSizeBytes, n)); }),
            Await(), begin(1, [=] { return PlanAllgather(ShapeOf(n, rank, all * bytes, 1), Starts(bytes, n)); }),
            Await()};
  }
  const auto exchange = [=](size_t each) {
    return [=] {
      const std::vector<Range> blocks = Blocks(each * static_cast<size_t>(n), n);
      return PairwiseExchange(ShapeOf(n, rank, each * static_cast<size_t>(n), 1), blocks, blocks);
    };
  };
  return {begin(1, exchange(kSizeBytes)), Await(), begin(1, exchange(bytes / static_cast<size_t>(n))), Await()};
}

}  // namespace hvd::simulate
