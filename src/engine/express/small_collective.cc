#include "engine/express/small_collective.h"

#include <cstring>

#include "base/average.h"
#include "collective/kernels/kernels.h"
#include "collective/shm/collectives.h"
#include "collective/shm/steps.h"

namespace hvd::engine {
namespace {

// 2 ranks on 2 cores that share an L3, from Python: 4 KB 4 us (5 the long way), 8 KB 6.4 (5.8), 64 KB 13.6 (7.9).
constexpr size_t kMostForAll = 4 << 10;

// Less is brought along in one piece sooner than left out.
constexpr size_t kLeastLeftOut = 4 << 10;

int64_t Number(const std::byte* place, int i) {
  int64_t number;
  std::memcpy(&number, place + static_cast<size_t>(i) * sizeof number, sizeof number);
  return number;
}

// Where the data lies behind so many numbers: right there while everything shares the line of the head, else at
// the next line.
size_t DataOffset(int numbers, size_t data_bytes) {
  constexpr size_t kLine = 64, kHead = Express::kHeadBytes;
  const size_t behind = kHead + static_cast<size_t>(numbers) * sizeof(int64_t);
  if (behind + data_bytes <= kLine) return behind - kHead;
  return (behind + kLine - 1) / kLine * kLine - kHead;
}

}  // namespace

SmallCollective::SmallCollective(const hvd_op& op, int me, int n)
    : op_(op), type_(static_cast<OpType>(op.type)), dtype_(static_cast<DType>(op.dtype)), me_(me), n_(n) {
  if (type_ == OpType::kBarrier) return;
  if (op.ndim > 0) rows_ = static_cast<size_t>(op.shape[0]);
  row_bytes_ = SizeOf(dtype_);
  for (int i = 1; i < op.ndim; ++i) row_bytes_ *= static_cast<size_t>(op.shape[i]);
}

bool SmallCollective::has_result() const {
  return type_ == OpType::kAllgather || type_ == OpType::kAlltoall || type_ == OpType::kReducescatter;
}

bool SmallCollective::Fits(bool crowded) const {
  if (type_ == OpType::kJoin || (type_ == OpType::kAllreduce && op_.reduce_op == HVD_ADASUM)) return false;
  if (has_result() && op_.ndim == 0) return false;
  if (type_ == OpType::kAllreduce && !crowded && bytes() > kMostForAll) return false;
  return bytes() <= Express::kMostBytes && DataOffset(numbers(), bytes()) + bytes() <= Express::kMostBytes;
}

int64_t SmallCollective::OwnNumber(int i) const {
  if (type_ == OpType::kAllgather) return static_cast<int64_t>(rows_);
  return op_.splits != nullptr ? op_.splits[i] : static_cast<int64_t>(rows_) / n_;
}

void SmallCollective::Bring(std::byte* place) const {
  for (int i = 0; i < numbers(); ++i) {
    const int64_t number = OwnNumber(i);
    std::memcpy(place + static_cast<size_t>(i) * sizeof number, &number, sizeof number);
  }
  if (type_ == OpType::kBroadcast && me_ != op_.root_rank) return;
  const size_t bytes = BroughtBytes(place);
  std::byte* data = place + DataOffset(numbers(), bytes);
  const auto* input = static_cast<const std::byte*>(op_.input);
  // What this rank sends to itself, [own, behind), nobody else reads.
  size_t own = bytes, behind = bytes;
  if (type_ == OpType::kAlltoall) {
    own = BytesBefore(place, me_);
    behind = BytesBefore(place, me_ + 1);
    if (behind - own < kLeastLeftOut) own = behind = bytes;
  }
  collective::kernels::Copy(data, input, own);
  collective::kernels::Copy(data + behind, input + behind, bytes - behind);
}

size_t SmallCollective::brought_bytes() const {
  if (type_ == OpType::kBroadcast && me_ != op_.root_rank) return 0;
  size_t rows = numbers() == 0 ? rows_ : 0;
  for (int i = 0; i < numbers(); ++i) rows += static_cast<size_t>(OwnNumber(i));  // of alltoall, not always all of them
  return DataOffset(numbers(), rows * row_bytes_) + rows * row_bytes_;
}

bool SmallCollective::Plausible(int member, std::span<const std::byte> brought) const {
  if (type_ == OpType::kBroadcast && member != op_.root_rank) return true;
  if (brought.size() < static_cast<size_t>(numbers()) * sizeof(int64_t)) return false;
  for (int i = 0; i < numbers(); ++i) {
    const int64_t rows = Number(brought.data(), i);
    if (rows < 0 || (row_bytes_ > 0 && static_cast<uint64_t>(rows) > brought.size() / row_bytes_)) return false;
  }
  const size_t bytes = BroughtBytes(brought.data());
  return brought.size() == DataOffset(numbers(), bytes) + bytes;
}

size_t SmallCollective::BroughtBytes(const std::byte* place) const {
  size_t rows = numbers() == 0 ? rows_ : 0;
  for (int i = 0; i < numbers(); ++i) rows += static_cast<size_t>(Number(place, i));
  return rows * row_bytes_;
}

// What lies in front of the part for a member.
size_t SmallCollective::BytesBefore(const std::byte* place, int member) const {
  size_t rows = 0;
  for (int i = 0; i < member; ++i) rows += static_cast<size_t>(Number(place, i));
  return rows * row_bytes_;
}

// A rank's own is better read where it comes from: what it has brought is on its way to the others.
const std::byte* SmallCollective::DataOf(Places places, int member) const {
  if (member == me_) return static_cast<const std::byte*>(op_.input);
  return places[member] + DataOffset(numbers(), BroughtBytes(places[member]));
}

Status SmallCollective::Take(Places places, collective::Tensor* result) const {
  auto* const output = static_cast<std::byte*>(op_.output);
  switch (type_) {
    case OpType::kAllreduce:
      Combine(places, 0, rows_ * row_bytes_, output);
      return Status();
    case OpType::kReducescatter: {
      const collective::shm::RowBlock block = collective::shm::BlockOfMember(rows_, n_, me_);
      HVD_TRY(result->PlaceResult(block.count * row_bytes_));
      result->shape[0] = static_cast<int64_t>(block.count);
      Combine(places, block.first * row_bytes_, block.count * row_bytes_, result->output);
      return Status();
    }
    case OpType::kBroadcast:
      collective::kernels::Copy(output, DataOf(places, op_.root_rank), rows_ * row_bytes_);
      return Status();
    case OpType::kAllgather:
    case OpType::kAlltoall:
      return Concatenate(places, result);
    case OpType::kBarrier:
    case OpType::kJoin:
    case OpType::kSend:
    case OpType::kRecv:
      return Status();
  }
  return Status();
}

// [first, first + bytes) of the sources, combined.
void SmallCollective::Combine(Places places, size_t first, size_t bytes, std::byte* out) const {
  collective::shm::PointerList<const void*> srcs(n_);
  for (int m = 0; m < n_; ++m) srcs[m] = DataOf(places, m) + first;
  collective::kernels::Factors factors{op_.prescale, op_.postscale};
  auto op = static_cast<ReduceOp>(op_.reduce_op);
  if (op == ReduceOp::kAverage) {
    op = ReduceOp::kSum;
    factors.post *= AverageFactor(dtype_, n_);
  }
  void* dst = out;
  collective::kernels::Reduce({dtype_, op, factors, srcs.data(), n_, &dst, 1, bytes / SizeOf(dtype_)});
}

// What all have for this rank, in rank order.
Status SmallCollective::Concatenate(Places places, collective::Tensor* result) const {
  const int mine = type_ == OpType::kAlltoall ? me_ : 0;  // of each rank's numbers
  int64_t rows = 0;
  for (int m = 0; m < n_; ++m) {
    result->received_rows.push_back(Number(places[m], mine));
    rows += result->received_rows.back();
  }
  HVD_TRY(result->PlaceResult(static_cast<size_t>(rows) * row_bytes_));
  result->shape[0] = rows;
  std::byte* out = result->output;
  for (int m = 0; m < n_; ++m) {
    const size_t bytes = static_cast<size_t>(result->received_rows[m]) * row_bytes_;
    collective::kernels::Copy(out, DataOf(places, m) + BytesBefore(places[m], mine), bytes);
    out += bytes;
  }
  return Status();
}

}  // namespace hvd::engine
