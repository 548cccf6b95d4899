// Schedules: which bytes of a virtual vector a member sends to whom and receives from whom, as plain values. Pure index
// arithmetic, equal inputs give matching plans on all members; plan_run.h executes one. Knows no transport, no
// memory, no type but the size of a unit.
//
// A plan is a list of sends and a list of receives. Each list is worked off in its own order; the two go on side by
// side (full duplex), but for `after`: a send starts when `after` receives are finished, a received value is
// combined when `after` sends are. Both lists are sorted by step, and an operation waits only for earlier steps
// (or, a combination, for the send of its own step): so the earliest unfinished step can always go on, and no plan
// deadlocks.
//
// Members are *positions* 0..n-1 (plan_run.h maps them). Ranges are in units (elements, or bytes where nothing is
// reduced); a range is cut into segments, one message each, so that one part travels while another is combined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd::collective::channels {

struct Range {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

// Part i of n of [0, units): sizes differ by at most one, larger ones first.
Range PartOf(size_t units, int n, int i);

enum class Where : uint8_t { kInput, kOutput };
enum class Action : uint8_t {
  kStore,
  kOwnFirst,
  kOwnLast
};  // received value replaces, or is combined behind / before the own one

struct Transfer {
  int peer = 0;
  uint32_t step = 0, segment = 0;  // the same on both sides; checked by the receiver
  Range range;
  uint32_t after = 0;              // see above
  Where own = Where::kOutput;      // send: where the bytes are taken from; combining receive: where the own operand is
  Action action = Action::kStore;  // receives; the result always goes to the output
  bool last = false;               // combining receive: yields the final value (the postscale factor is due)
};

struct Plan {
  std::vector<Transfer> sends, receives;
};

inline constexpr size_t kSegmentBytes = 256 << 10;
// Of what is neither combined nor sent on: nothing overlaps within it, so fewer headers win.
inline constexpr size_t kMovedSegmentBytes = 1 << 20;

// The input of a planner: n positions, the own one, how many units, and how many units make a segment.
struct Shape {
  int n = 1, me = 0;
  size_t units = 0;
  size_t segment_units = 1;
};
inline Shape ShapeOf(int n, int me, size_t units, size_t unit_bytes, size_t segment_bytes = kSegmentBytes) {
  return {n, me, units, unit_bytes >= segment_bytes ? 1 : segment_bytes / unit_bytes};
}

// Of bytes that two members send one another, or more of them in turn.
inline Shape MovedShape(int n, int me, size_t bytes) {
  return ShapeOf(n, me, bytes, 1, n == 2 ? kMovedSegmentBytes : kSegmentBytes);
}

// ---- allreduce. Every element's combination tree is the same on all members, or the element is combined at one member
// only: equal bits.

// Recursive doubling: ceil(log2 n) steps, each with the whole vector; a number that is not a power of two folds the
// first pairs before and unfolds after. Blocks of consecutive positions are combined lower first. Thakur, Rabenseifner,
// Gropp 2005, section 4.1.
Plan AllreduceDoubling(const Shape& s);
// Rabenseifner: reduce-scatter by vector halving and distance doubling, allgather back: 2 log2 n steps, 2 (n-1)/n of
// the vector per member (folding adds up to 2). Thakur, Rabenseifner, Gropp 2005, section 4.4.
Plan AllreduceHalving(const Shape& s);
// Ring: reduce-scatter, then allgather: 2 (n-1) steps, 2 (n-1)/n of the vector per member, only neighbours talk,
// pipelined by segments. Patarasuk and Yuan 2009.
Plan AllreduceRing(const Shape& s);

enum class AllreducePlan { kDoubling, kHalving, kRing };
// flows: plans of as many bytes that share each link, side by side; equal on all members.
AllreducePlan ChooseAllreduce(int n, size_t bytes, int flows = 1);
Plan PlanAllreduce(const Shape& s, size_t unit_bytes, int flows = 1);

// ---- allgather. Blocks lie in the *rotated* order of the own position: block r is that of position (me + r) mod n, at
// [starts[r], starts[r + 1]). Each member sends and receives every block but one once: the sum of the others' sizes.

// Ring: n-1 steps, neighbours only, pipelined.
Plan AllgatherRing(const Shape& s, const std::vector<size_t>& starts);
// Bruck et al. 1997: ceil(log2 n) steps, doubling what is held.
Plan AllgatherBruck(const Shape& s, const std::vector<size_t>& starts);
inline constexpr size_t kBruckBytes = 64 << 10;  // total; above, latency no longer decides
Plan PlanAllgather(const Shape& s, const std::vector<size_t>& starts);

// ---- broadcast of `units` from position root.

// Binomial tree: ceil(log2 n) steps, each with the whole vector.
Plan BroadcastTree(const Shape& s, int root);
// Chain, pipelined by segments: every member receives and sends the vector once; n - 2 + segments steps. Where the
// positions of a host are consecutive, each host boundary is crossed once.
Plan BroadcastChain(const Shape& s, int root);
// A long chain gets smaller segments than those of `s`. flows: as for PlanAllreduce.
Plan PlanBroadcast(const Shape& s, int root, size_t unit_bytes, int flows = 1);

// ---- pairwise exchange: in step k to position me + k and from position me - k; n-1 steps, nothing waits for anything.

// Alltoall: block of position p at sends[p] (input) and at receives[p] (output).
Plan PairwiseExchange(const Shape& s, const std::vector<Range>& sends, const std::vector<Range>& receives);
// Reduce-scatter: block of position p at sends[p] (input) goes to p; what arrives is combined into [0, own size) of the
// output. (n-1)/n of the vector per member, no memory beside one segment; each element is combined at one member, in
// the fixed order me, me-1, me-2, ...
Plan PairwiseReduce(const Shape& s, const std::vector<Range>& sends);

// One exchange with a single peer: [0, send_bytes) of the input for [0, receive_bytes) of the output.
Plan SwapBytes(int peer, size_t send_bytes, size_t receive_bytes);

// ---- barrier: one unit, ceil(log2 n) steps. Hensgen, Finkel, Manber 1988 (dissemination).
Plan Dissemination(const Shape& s);

}  // namespace hvd::collective::channels
