#include "engine/express/exchange.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "collective/channels/ahead.h"
#include "collective/kernels/kernels.h"
#include "collective/shm/collectives.h"
#include "collective/shm/steps.h"
#include "engine/express/small_collective.h"
#include "negotiation/values/tree.h"

namespace hvd::engine {
namespace {

// Data of all members together. More of two ranks leaves ahead. With more ranks, every host gets all of it, and of many
// the root sends it to each of its children.
constexpr size_t MostBytes(size_t ranks) {
  return ranks == 2 ? 16 << 10 : ranks <= negotiation::kMostDirectHosts ? 16 << 10 : 4 << 10;
}
// The same with the numbers that go along with an alltoall, which grow with the square of the ranks.
constexpr size_t MostBroughtBytes(size_t ranks) { return MostBytes(ranks) + (4 << 10); }
static_assert(MostBroughtBytes(2) <= negotiation::kMostPayloadBytes);

bool MayBring(const hvd_op& op, const collective::Group& group) {
  if (op.process_set != 0 || op.place != kOnHost || op.type < HVD_ALLREDUCE || op.type > HVD_BARRIER) return false;
  if (op.name == nullptr || op.name[0] == '\0') return false;  // negotiated in full each time
  return !group.one_host() && !group.deterministic;
}

}  // namespace

std::shared_ptr<const std::vector<std::byte>> PayloadOf(const hvd_op& op, const collective::Group& group) {
  if (!MayBring(op, group)) return nullptr;
  const SmallCollective small(op, group.index, group.size());
  const auto size = static_cast<size_t>(group.size());
  if (!small.Fits(/*crowded=*/true) || small.bytes() > MostBytes(size) / size) return nullptr;
  if (small.brought_bytes() > MostBroughtBytes(size) / size) return nullptr;
  auto payload = std::make_shared<std::vector<std::byte>>(small.brought_bytes());
  small.Bring(payload->data());
  return payload;
}

namespace {

hvd_op OpOf(const negotiation::Request& agreed, const collective::Tensor& own, const std::vector<int64_t>& shape) {
  hvd_op op = {};
  op.type = static_cast<int32_t>(agreed.type);
  op.dtype = static_cast<int32_t>(agreed.dtype);
  op.reduce_op = static_cast<int32_t>(agreed.op);
  op.root_rank = agreed.root;
  op.prescale = agreed.prescale;
  op.postscale = agreed.postscale;
  op.input = own.input;
  op.output = own.output;
  op.ndim = static_cast<int32_t>(shape.size());
  op.shape = shape.data();
  return op;
}

Status Implausible(const negotiation::Request& agreed, const negotiation::Payload& p) {
  return Status(Code::kInternal, "rank " + std::to_string(p.rank) + " contributed " + std::to_string(p.bytes.size()) +
                                     " bytes to '" + agreed.name + "', which is not the size of its tensor.");
}

}  // namespace

Status Combine(const negotiation::Request& agreed, const std::vector<negotiation::Payload>& payloads,
               const collective::Group& group, Submitted* own) {
  const std::vector<int64_t> shape = own->tensor.shape;
  const hvd_op op = OpOf(agreed, own->tensor, shape);
  const SmallCollective small(op, group.index, group.size());
  std::vector<const std::byte*> places;
  for (const negotiation::Payload& p : payloads) {
    if (!small.Plausible(static_cast<int>(places.size()), p.bytes)) {
      return Implausible(agreed, p);
    }
    places.push_back(p.bytes.data());
  }
  return small.Take(places.data(), &own->tensor);
}

// ---- between two ranks

namespace {

// The most that leaves ahead. Of an allreduce both ranks reduce all of it; from about there on it is sooner done by
// halves. What both send at once should find room in the connection: 512 KB were
// faster in one run and slower in the next.
constexpr size_t MostAhead(OpType type) {
  if (type == OpType::kAllreduce) return 128 << 10;
  return type == OpType::kBroadcast ? collective::channels::kMostAheadBytes : 256 << 10;
}

int64_t RowsFor(const hvd_op& op, int member) { return op.splits != nullptr ? op.splits[member] : op.shape[0] / 2; }

// Of what this rank has: the part that the other needs.
std::span<const std::byte> PartFor(const hvd_op& op, int me) {
  size_t row_bytes = SizeOf(static_cast<DType>(op.dtype));
  for (int i = 1; i < op.ndim; ++i) row_bytes *= static_cast<size_t>(op.shape[i]);
  const size_t rows = op.ndim > 0 ? static_cast<size_t>(op.shape[0]) : 1;
  size_t first = 0, count = rows;
  if (op.type == HVD_ALLTOALL) {
    first = me == 0 ? static_cast<size_t>(RowsFor(op, 0)) : 0;
    count = static_cast<size_t>(RowsFor(op, 1 - me));
  } else if (op.type == HVD_REDUCESCATTER) {
    const collective::shm::RowBlock block = collective::shm::BlockOfMember(rows, 2, 1 - me);
    first = block.first;
    count = block.count;
  } else if (op.type == HVD_BROADCAST && me != op.root_rank) {
    count = 0;
  }
  return {static_cast<const std::byte*>(op.input) + first * row_bytes, count * row_bytes};
}

// What comes from the other, and where it belongs.
class Pair {
 public:
  Pair(const negotiation::Request& agreed, const std::vector<negotiation::Payload>& payloads,
       const collective::Group& group, collective::Batch* batch)
      : agreed_(agreed), theirs_(payloads[1 - group.index]), group_(group), batch_(*batch), t_(batch->tensors[0]) {}

  Task Run() {
    std::span<const std::byte> inline_part;
    HVD_CO_TRY(SeeTheirs(&inline_part));
    HVD_CO_TRY(Place());
    if (theirs_.ahead == 0) std::copy(inline_part.begin(), inline_part.end(), to_.begin());
    transport::Channel* const channel = group_.channels[1 - group_.index];
    batch_.waiting_for = channel->peer();
    HVD_CO_TRY(co_await collective::channels::ReceiveAhead(channel, theirs_.ahead, to_));
    batch_.waiting_for = -1;
    if (reduces()) Reduce();
    co_return Status();
  }

 private:
  bool reduces() const { return agreed_.type == OpType::kAllreduce || agreed_.type == OpType::kReducescatter; }
  bool root() const { return batch_.root == group_.index; }
  size_t row_bytes() const { return t_.row_elems * SizeOf(agreed_.dtype); }
  size_t bytes() const { return t_.elems * SizeOf(agreed_.dtype); }
  collective::shm::RowBlock Block(int member) const {
    return collective::shm::BlockOfMember(static_cast<size_t>(t_.shape[0]), 2, member);
  }

  // How much comes, in size_, and it itself where it is here.
  Status SeeTheirs(std::span<const std::byte>* part) {
    const bool rows_differ = agreed_.type == OpType::kAllgather || agreed_.type == OpType::kAlltoall;
    if (theirs_.ahead == 0) {
      const std::vector<int64_t> shape = t_.shape;
      const hvd_op op = OpOf(agreed_, t_, shape);
      const SmallCollective small(op, group_.index, 2);
      if (agreed_.type == OpType::kBroadcast && root()) return Status();
      if (!small.Plausible(1 - group_.index, theirs_.bytes)) return Implausible(agreed_, theirs_);
      *part = small.PartForMe(theirs_.bytes.data());
      size_ = part->size();
      if (rows_differ && row_bytes() == 0) return Implausible(agreed_, theirs_);
    } else if (rows_differ) {
      int64_t rows = 0;
      if (theirs_.bytes.size() != sizeof rows) return Implausible(agreed_, theirs_);
      std::memcpy(&rows, theirs_.bytes.data(), sizeof rows);
      if (rows <= 0 ||
          static_cast<size_t>(rows) > collective::channels::kMostAheadBytes / std::max<size_t>(1, row_bytes()))
        return Implausible(agreed_, theirs_);
      size_ = static_cast<size_t>(rows) * row_bytes();
    } else {
      size_ = agreed_.type == OpType::kReducescatter ? Block(group_.index).count * row_bytes() : bytes();
    }
    return Status();
  }

  // The result, and in to_ where what comes goes; what this rank has itself is there already.
  Status Place() {
    if (agreed_.type == OpType::kBroadcast) {
      if (root() && t_.output != t_.input) std::copy(t_.input, t_.input + bytes(), t_.output);
      to_ = {t_.output, root() ? 0 : size_};
      return Status();
    }
    if (reduces()) {
      if (agreed_.type == OpType::kReducescatter) HVD_TRY(t_.PlaceResult(size_));
      if (group_.scratch.size() < size_) group_.scratch.resize(size_);
      to_ = {group_.scratch.data(), size_};
      return Status();
    }
    const int me = group_.index;
    const bool all = agreed_.type == OpType::kAllgather;
    const size_t rows = static_cast<size_t>(all ? t_.shape[0] : t_.splits[me]), own = rows * row_bytes();
    const std::byte* const from = t_.input + (all || me == 0 ? 0 : static_cast<size_t>(t_.splits[0]) * row_bytes());
    t_.received_rows.assign(2, static_cast<int64_t>(rows));
    t_.received_rows[1 - me] = static_cast<int64_t>(size_ / row_bytes());
    HVD_TRY(t_.PlaceResult(own + size_));
    collective::kernels::Copy(t_.output + (me == 0 ? 0 : size_), from, own);
    to_ = {t_.output + (me == 0 ? own : 0), size_};
    return Status();
  }

  // In rank order, as everywhere.
  void Reduce() const {
    const size_t first = agreed_.type == OpType::kReducescatter ? Block(group_.index).first * row_bytes() : 0;
    const void* both[2] = {t_.input + first, to_.data()};
    if (group_.index == 1) std::swap(both[0], both[1]);
    void* dst = t_.output;
    const collective::kernels::Factors factors{batch_.prescale, batch_.postscale};
    collective::kernels::Reduce({agreed_.dtype, batch_.op, factors, both, 2, &dst, 1, size_ / SizeOf(agreed_.dtype)});
  }

  const negotiation::Request& agreed_;
  const negotiation::Payload& theirs_;
  const collective::Group& group_;
  collective::Batch& batch_;
  collective::Tensor& t_;
  size_t size_ = 0;
  std::span<std::byte> to_;
};

}  // namespace

bool AheadOf(const hvd_op& op, const collective::Group& group, Ahead* ahead) {
  if (!MayBring(op, group) || group.size() != 2 || op.type == HVD_BARRIER) return false;
  if (op.type == HVD_ALLREDUCE && op.reduce_op == HVD_ADASUM) return false;
  const bool has_rows = op.type == HVD_ALLGATHER || op.type == HVD_ALLTOALL || op.type == HVD_REDUCESCATTER;
  transport::Channel* const channel = group.channels[1 - group.index];
  if ((has_rows && op.ndim == 0) || channel == nullptr || !channel->takes_whole()) return false;
  ahead->data = PartFor(op, group.index);
  ahead->payload = std::make_shared<std::vector<std::byte>>();
  if (op.type == HVD_BROADCAST && op.root_rank != group.index) return true;
  if (ahead->data.empty() || ahead->data.size() > MostAhead(static_cast<OpType>(op.type))) return false;
  ahead->channel = channel;
  if (op.type == HVD_ALLGATHER || op.type == HVD_ALLTOALL) {
    const int64_t rows = op.type == HVD_ALLGATHER ? op.shape[0] : RowsFor(op, 1 - group.index);
    const auto number = std::as_bytes(std::span(&rows, 1));
    ahead->payload = std::make_shared<std::vector<std::byte>>(number.begin(), number.end());
  }
  return true;
}

bool IsAhead(const std::vector<negotiation::Payload>& payloads) {
  return std::any_of(payloads.begin(), payloads.end(), [](const auto& p) { return p.ahead != 0; });
}

Task CombineAhead(const negotiation::Request& agreed, const std::vector<negotiation::Payload>& payloads,
                  const collective::Group& group, collective::Batch* batch) {
  Pair pair(agreed, payloads, group, batch);
  co_return co_await pair.Run();
}

}  // namespace hvd::engine
