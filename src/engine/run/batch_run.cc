#include "engine/run/batch_run.h"

#include <algorithm>
#include <utility>

#include "base/average.h"
#include "collective/kernels/kernels.h"
#include "negotiation/values/op_text.h"
#include "negotiation/values/pair.h"

namespace hvd::engine {
namespace {

// A batch takes three numbers of the host's ways: its own, or, where the members of its set have to be introduced to
// one another first, one for that and one for itself.
constexpr uint64_t kNumbersOfBatch = 3;

// Memory that holds the neutral value of a reduction; *t says where it lies and, on a device, from when on.
Result<std::unique_ptr<collective::Block>> Neutral(const negotiation::Request& r, ReduceOp op, size_t elems,
                                                   backend::Devices* devices, collective::Tensor* t) {
  if (op == ReduceOp::kAdasum) op = ReduceOp::kSum;
  if (r.on_device && devices != nullptr) {
    t->device = std::make_unique<collective::OnDevice>();
    return devices->Identity(r.dtype, op, elems, &t->device->made);
  }
  auto memory = std::make_unique<collective::Block>(elems * SizeOf(r.dtype));
  if (memory->data == nullptr) return OutOfMemory();
  collective::kernels::FillIdentity(r.dtype, op, memory->data, elems);
  return memory;
}

// A joined rank has no tensor: it contributes the neutral value of the operation and throws the result away, so that
// Average still divides by the full size of the set. Without memory for that it is unable.
collective::Tensor StandIn(const negotiation::Request& r, ReduceOp op, int rank, backend::Devices* devices,
                           BatchRun* run) {
  collective::Tensor t;
  t.shape = r.shape;
  t.elems = 1;
  for (const int64_t extent : t.shape) t.elems *= static_cast<size_t>(extent);
  Result<std::unique_ptr<collective::Block>> memory = Neutral(r, op, t.elems, devices, &t);
  if (memory.ok()) {
    t.input = t.output = (*memory)->data;
    run->stand_ins.push_back(std::move(*memory));
  } else if (run->unable.ok()) {
    run->unable =
        memory.status().Because(std::string(NameOf(r.type)) + " '" + r.name + "': rank " + std::to_string(rank) +
                                " has joined and has no memory for the " + std::to_string(t.elems * SizeOf(r.dtype)) +
                                " bytes that stand in for its tensor");
  }
  return t;
}

// Validated: it is one.
int MemberOf(const collective::Group& group, int rank) {
  return static_cast<int>(std::lower_bound(group.ranks.begin(), group.ranks.end(), rank) - group.ranks.begin());
}

}  // namespace

void BatchRun::Fill(const negotiation::ExecuteBatch& order, std::shared_ptr<ProcessSets::Set> of,
                    Submissions* submissions, int rank, backend::Devices* devices) {
  const negotiation::Request& first = *order.entries[0].request;
  collective::Batch& b = batch;
  b.seq = order.seq * kNumbersOfBatch;
  b.type = first.type;
  b.dtype = first.dtype;
  b.op = first.op == ReduceOp::kAverage ? ReduceOp::kSum : first.op;
  b.prescale = first.prescale;
  b.postscale = first.postscale;
  b.on_device = first.on_device;
  if (first.op == ReduceOp::kAverage) b.postscale *= AverageFactor(first.dtype, of->group.size());
  if (first.type == OpType::kBroadcast) b.root = MemberOf(of->group, first.root);
  if (const std::optional<negotiation::Pair> pair = negotiation::PairOf(first.name)) {
    b.root = MemberOf(of->group, pair->from);
    b.receiver = MemberOf(of->group, pair->to);
  }
  agreed.reserve(order.entries.size());
  own.reserve(order.entries.size());
  b.tensors.reserve(order.entries.size());
  for (const negotiation::Entry& e : order.entries) {
    agreed.push_back(e.request);
    if (e.ticket == 0) {
      b.tensors.push_back(StandIn(*e.request, b.op, rank, devices, this));
      own.push_back(nullptr);
    } else {
      own.push_back(submissions->Take(e.ticket));
      b.tensors.push_back(std::move(own.back()->tensor));
    }
  }
  set = std::move(of);
}

std::string BatchRun::Describe() const {
  if (IsPointToPoint(batch.type) && own[0] != nullptr)
    return negotiation::Subject(own[0]->type, own[0]->name, own[0]->process_set);
  std::string text = std::string(NameOf(batch.type)) + " '" + agreed[0]->name + "'";
  if (agreed.size() > 1) text += " and " + std::to_string(agreed.size() - 1) + " more";
  return text;
}

}  // namespace hvd::engine
