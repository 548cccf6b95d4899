// Allreduce and reducescatter by NCCL.
#include <vector>

#include "backend/nccl/call.h"
#include "backend/nccl/reducing.h"
#include "collective/shm/collectives.h"

namespace hvd::backend::nccl {
namespace {

using collective::Tensor;

// Of several tensors the ones below are packed into one buffer: a call of NCCL costs more than two copies of that.
// 115 gradients up to 64 KB take about 880 us of the host by themselves, 15 us packed (docs/gpu.md).
constexpr size_t kPackBelowBytes = 4u << 20;

// What is packed, and where it lies in the buffer; the rest goes to NCCL where it lies.
class Plan {
 public:
  Plan(const collective::Group& group, const collective::Batch& batch) {
    const bool pack = batch.tensors.size() > 1 && !group.deterministic;
    for (const Tensor& t : batch.tensors) {
      const size_t bytes = t.elems * SizeOf(batch.dtype);
      if (bytes == 0) continue;
      if (pack && bytes < kPackBelowBytes) {
        packed_.push_back({&t, total_});
        total_ += Aligned(bytes);
      } else {
        alone_.push_back(&t);
      }
    }
    if (packed_.size() != 1) return;
    alone_.push_back(packed_[0].tensor);
    packed_.clear();
    total_ = 0;
  }
  const std::vector<Packed>& packed() const { return packed_; }
  const std::vector<const Tensor*>& alone() const { return alone_; }
  size_t total() const { return total_; }
  // Into the buffer, out of it and where our kernel multiplies; one of NCCL's for the buffer and each that is alone.
  size_t commands() const {
    return 2 * cuda::Packing::Launches(packed_.size()) + cuda::Packing::Launches(alone_.size()) + 1 + alone_.size();
  }

 private:
  std::vector<Packed> packed_;
  std::vector<const Tensor*> alone_;
  size_t total_ = 0;
};

// Multiplied into the outputs, where our kernel must.
Status ScaleAlone(const Call& call, const Plan& plan, float factor) {
  if (factor == 1.0f) return Status();
  std::vector<cuda::Move> moves;
  for (const Tensor* t : plan.alone()) moves.push_back({t->input, t->output, call.BytesOf(*t)});
  if (moves.empty()) return Status();
  call.Phase("SCALE");
  return call.packing.Launch(moves, call.batch.dtype, factor, call.on());
}

Task ReduceAll(const Call& call, const Plan& plan, int packed_op, const Summing& how, std::byte* buffer) {
  const int type = *TypeOf(call.batch.dtype);
  std::vector<Operation> operations;
  if (buffer != nullptr) {
    const size_t elems = plan.total() / call.elem_bytes();
    operations.push_back({Operation::kAllreduce, buffer, buffer, elems, type, packed_op});
  }
  for (const Tensor* t : plan.alone()) {
    const std::byte* const from = how.factor == 1.0f ? t->input : t->output;
    operations.push_back({Operation::kAllreduce, from, t->output, t->elems, type, how.op});
  }
  call.Phase("NCCL_ALLREDUCE");
  return call.Put(std::move(operations), "ncclAllReduce");
}

// The inputs of a reducescatter, where our kernel must multiply them: copies in the buffer.
Result<std::vector<const std::byte*>> Inputs(const Call& call, float factor) {
  std::vector<const std::byte*> from;
  size_t total = 0;
  for (const Tensor& t : call.batch.tensors) {
    from.push_back(t.input);
    total += Aligned(call.BytesOf(t));
  }
  if (factor == 1.0f || total == 0) return from;
  const Result<std::byte*> room = call.queue.scratch->Room(total);
  HVD_TRY(room.status());
  std::vector<cuda::Move> moves;
  std::byte* at = *room;
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t bytes = call.BytesOf(call.batch.tensors[i]);
    if (bytes > 0) moves.push_back({from[i], at, bytes});
    from[i] = at;
    at += Aligned(bytes);
  }
  call.Phase("MEMCPY_IN_FUSION_BUFFER");
  HVD_TRY(call.packing.Launch(moves, call.batch.dtype, factor, call.on()));
  return from;
}

// Blocks of equal size by one call, others each to its member.
void ScatterOne(const Call& call, const Tensor& t, const std::byte* from, int op, std::vector<Operation>* out) {
  const int type = *TypeOf(call.batch.dtype);
  const auto rows = static_cast<size_t>(t.shape[0]);
  if (rows % call.n() == 0) {
    out->push_back({Operation::kReduceScatter, from, t.output, t.elems / call.n(), type, op});
    return;
  }
  for (int m = 0; m < call.n(); ++m) {
    const collective::shm::RowBlock block = collective::shm::BlockOfMember(rows, call.n(), m);
    if (block.count == 0) continue;
    const std::byte* const part = from + block.first * t.row_elems * call.elem_bytes();
    out->push_back({Operation::kReduce, part, t.output, block.count * t.row_elems, type, op, m});
  }
}

}  // namespace

// But for an allreduce: for each tensor a wait for its memory and a kernel of NCCL's, and one of ours.
size_t CommandsOf(const collective::Group& group, const collective::Batch& batch) {
  constexpr size_t kMoments = 8;  // the end, and those of the phases where a trace is written
  if (batch.type == OpType::kAllreduce) return Plan(group, batch).commands() + kMoments;
  return 2 * batch.tensors.size() + cuda::Packing::Launches(batch.tensors.size()) + kMoments;
}

Task Allreduce(const Call& call) {
  const Plan plan(call.group, call.batch);
  Result<Summing> packed = SummingOfPacked(call), alone = plan.alone().empty() ? packed : SummingOf(call);
  HVD_CO_TRY(packed.status());
  HVD_CO_TRY(alone.status());
  std::byte* buffer = nullptr;
  if (!plan.packed().empty()) {
    const Result<std::byte*> room = call.queue.scratch->Room(plan.total());
    HVD_CO_TRY(room.status());
    buffer = *room;
    call.Phase("MEMCPY_IN_FUSION_BUFFER");
    HVD_CO_TRY(Pack(call, plan.packed(), packed->factor, buffer));
  }
  HVD_CO_TRY(ScaleAlone(call, plan, alone->factor));
  HVD_CO_TRY(co_await ReduceAll(call, plan, packed->op, *alone, buffer));
  if (buffer == nullptr) co_return Status();
  call.Phase("MEMCPY_OUT_FUSION_BUFFER");
  co_return Unpack(call, plan.packed(), buffer);
}

Task Reducescatter(const Call& call) {
  Result<Summing> how = SummingOf(call);
  HVD_CO_TRY(how.status());
  Result<std::vector<const std::byte*>> inputs = Inputs(call, how->factor);
  HVD_CO_TRY(inputs.status());
  call.Phase("NCCL_REDUCESCATTER");
  std::vector<Operation> operations;
  for (size_t i = 0; i < call.batch.tensors.size(); ++i) {
    const Tensor& t = call.batch.tensors[i];
    if (t.elems > 0) ScatterOne(call, t, (*inputs)[i], how->op, &operations);
  }
  co_return co_await call.Put(std::move(operations), "ncclReduceScatter");
}

}  // namespace hvd::backend::nccl
