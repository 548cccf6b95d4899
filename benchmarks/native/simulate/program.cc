#include "program.h"

#include <numeric>

#include "two_level.h"

namespace hvd::simulate {
namespace {

using collective::channels::Plan;
using collective::channels::Range;
using collective::channels::Shape;
using collective::channels::ShapeOf;

}  // namespace

const std::vector<std::string>& Operations() {
  static const std::vector<std::string> all = {"allreduce",     "allgather", "broadcast",
                                               "reducescatter", "alltoall",  "barrier"};
  return all;
}

std::vector<Range> EqualBlocks(size_t units, int n) {
  std::vector<Range> blocks;
  for (int i = 0; i < n; ++i) blocks.push_back(collective::channels::PartOf(units, n, i));
  return blocks;
}

std::vector<size_t> EqualStarts(size_t bytes, int n) {
  std::vector<size_t> starts;
  for (int i = 0; i <= n; ++i) starts.push_back(static_cast<size_t>(i) * bytes);
  return starts;
}

Program ProgramOf(const std::string& operation, size_t bytes, const Layout& layout, int rank, bool two_level,
                  const Costs& costs) {
  const int n = layout.size();
  if (n == 1) return {};
  if (two_level && TwoLevelPays(operation, bytes, layout)) return TwoLevel(operation, bytes, layout, rank, costs);
  auto everybody = std::make_shared<std::vector<int>>(n);
  std::iota(everybody->begin(), everybody->end(), 0);
  const Shape whole = ShapeOf(n, rank, bytes, 1), elements = ShapeOf(n, rank, bytes / kUnit, kUnit);
  const auto begin = [&](size_t unit, std::function<Plan()> plan) { return Begin(everybody, unit, std::move(plan)); };
  if (operation == "allreduce") return {begin(kUnit, [=] { return PlanAllreduce(elements, kUnit); }), Await()};
  if (operation == "broadcast") return {begin(1, [=] { return PlanBroadcast(whole, 0, 1); }), Await()};
  if (operation == "barrier") return {begin(1, [=] { return Dissemination(ShapeOf(n, rank, 1, 1)); }), Await()};
  if (operation == "reducescatter")
    return {begin(kUnit, [=] { return PairwiseReduce(elements, EqualBlocks(elements.units, n)); }), Await()};
  if (operation == "allgather") {
    const auto all = static_cast<size_t>(n);
    return {begin(1, [=] { return AllgatherBruck(ShapeOf(n, rank, all * kSizeBytes, 1), EqualStarts(kSizeBytes, n)); }),
            Await(), begin(1, [=] { return PlanAllgather(ShapeOf(n, rank, all * bytes, 1), EqualStarts(bytes, n)); }),
            Await()};
  }
  const auto exchange = [=](size_t each) {
    return [=] {
      const std::vector<Range> blocks = EqualBlocks(each * static_cast<size_t>(n), n);
      return PairwiseExchange(ShapeOf(n, rank, each * static_cast<size_t>(n), 1), blocks, blocks);
    };
  };
  return {begin(1, exchange(kSizeBytes)), Await(), begin(1, exchange(bytes / static_cast<size_t>(n))), Await()};
}

}  // namespace hvd::simulate
