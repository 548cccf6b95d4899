#include "engine/entry/checks.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "engine/submit/submissions.h"
#include "negotiation/values/new_set.h"
#include "negotiation/values/pair.h"
#include "negotiation/values/signature.h"

namespace hvd::engine {
namespace {

Status Unsupported(const hvd_op& op, const std::string& what) {
  return InvalidOperation(op, Status(Code::kUnsupported, what));
}

Status CheckShape(const hvd_op& op) {
  if (op.ndim < 0 || op.ndim > 16)
    return InvalidOperation(op,
                            "tensors of 0 to 16 dimensions are supported. Received: " + std::to_string(op.ndim) + ".");
  int64_t elems = 1;
  for (int i = 0; i < op.ndim; ++i) {
    if (op.shape[i] < 0 || __builtin_mul_overflow(elems, op.shape[i], &elems) ||
        elems > std::numeric_limits<int64_t>::max() / 16) {
      return InvalidOperation(op, "the shape has a negative or too large extent.");
    }
  }
  if (elems > 0 && op.input == nullptr && op.type != HVD_BARRIER && op.type != HVD_RECV)
    return InvalidOperation(op, "the input pointer is null.");
  const bool caller_owns_output = op.type == HVD_ALLREDUCE || op.type == HVD_BROADCAST || op.type == HVD_RECV;
  if (elems > 0 && caller_owns_output && op.output == nullptr)
    return InvalidOperation(op, "the output pointer is null.");
  if (op.output_bytes < 0) return InvalidOperation(op, "output_bytes is negative.");
  return Status();
}

Status CheckReduction(const hvd_op& op, int set_size, bool power_of_two) {
  if (!IsValidReduceOp(op.reduce_op))
    return InvalidOperation(op, "unknown reduction " + std::to_string(op.reduce_op) + ".");
  const auto dtype = static_cast<DType>(op.dtype);
  if (op.type == HVD_REDUCESCATTER && op.reduce_op != HVD_SUM && op.reduce_op != HVD_AVERAGE) {
    return Unsupported(op, std::string("only Sum and Average are supported. Received: ") +
                               NameOf(static_cast<ReduceOp>(op.reduce_op)) + ".");
  }
  if (op.reduce_op == HVD_ADASUM) {
    if (!IsFloat(dtype))
      return Unsupported(op, std::string("Adasum needs a floating dtype. Received: ") + NameOf(dtype) + ".");
    if (!power_of_two) {
      return Unsupported(op, "Adasum needs a power of two of ranks; the process set has " + std::to_string(set_size) +
                                 ". Use Average or Sum.");
    }
  }
  const bool scaled = op.reduce_op == HVD_AVERAGE || op.prescale != 1.0 || op.postscale != 1.0;
  if (dtype == DType::kBool && scaled)
    return Unsupported(op, "bool tensors can be neither averaged nor scaled; use Sum (or), Min or Product (and).");
  return Status();
}

Status CheckSplits(const hvd_op& op, int set_size) {
  if (op.ndim == 0) return Status();  // the negotiation refuses scalars, on every member
  if (op.splits == nullptr) {
    if (op.shape[0] % set_size == 0) return Status();
    return InvalidOperation(op,
                            "without splits the first dimension must be divisible by the size of the process set (" +
                                std::to_string(set_size) + "). Received: " + std::to_string(op.shape[0]) + ".");
  }
  if (op.n_splits != set_size) {
    return InvalidOperation(op, "splits needs one entry per member of the process set (" + std::to_string(set_size) +
                                    "). Received: " + std::to_string(op.n_splits) + ".");
  }
  int64_t sum = 0;
  for (int i = 0; i < op.n_splits; ++i) {
    if (op.splits[i] < 0)
      return InvalidOperation(op, "splits has a negative entry: " + std::to_string(op.splits[i]) + ".");
    sum += op.splits[i];
  }
  if (sum > op.shape[0]) {
    return InvalidOperation(op, "the splits add up to " + std::to_string(sum) + ", more than the first dimension (" +
                                    std::to_string(op.shape[0]) + ").");
  }
  return Status();
}

}  // namespace

Status InvalidOperation(const hvd_op& op, const std::string& what) {
  const std::string_view name(op.name ? op.name : "", op.name ? strnlen(op.name, kMostNameBytes) : 0);
  return Status(Code::kInvalidArgument,
                negotiation::Subject(static_cast<OpType>(op.type), std::string(name), 0) + ": " + what);
}

Status InvalidOperation(const hvd_op& op, const Status& why) {
  return Status(why.code(), InvalidOperation(op, why.message()).message());
}

Status CheckName(const hvd_op& op) {
  if (op.name == nullptr) return Status();
  if (negotiation::NamesNewSet(op.name) ||
      (negotiation::PairOf(op.name) && !IsPointToPoint(static_cast<OpType>(op.type))))
    return InvalidOperation(op, "this name is one of the core's own; use another one.");
  if (strnlen(op.name, kMostNameBytes + 1) <= kMostNameBytes) return Status();
  return InvalidOperation(op,
                          "the name is longer than " + std::to_string(kMostNameBytes) + " bytes; use a shorter one.");
}

Status CheckPartner(const hvd_op& op, const collective::Group& group) {
  if (std::binary_search(group.ranks.begin(), group.ranks.end(), op.root_rank)) return Status();
  return InvalidOperation(op, "rank " + std::to_string(op.root_rank) + " is not a member of process set " +
                                  std::to_string(op.process_set) + ".");
}

Status CheckOperation(const hvd_op& op, const collective::Group& group) {
  if (!IsValidDType(op.dtype)) return InvalidOperation(op, "unknown dtype " + std::to_string(op.dtype) + ".");
  HVD_TRY(CheckShape(op));
  const int n = group.size();
  if (op.type == HVD_ALLREDUCE || op.type == HVD_REDUCESCATTER) HVD_TRY(CheckReduction(op, n, (n & (n - 1)) == 0));
  if (op.type == HVD_ALLTOALL) HVD_TRY(CheckSplits(op, n));
  if (op.type == HVD_BROADCAST && !std::binary_search(group.ranks.begin(), group.ranks.end(), op.root_rank)) {
    return InvalidOperation(op, "root rank " + std::to_string(op.root_rank) + " is not a member of process set " +
                                    std::to_string(op.process_set) + ".");
  }
  return Status();
}

Status CheckPlace(const hvd_op& op, const backend::Devices* devices) {
  if (op.type == HVD_BARRIER) return InvalidOperation(op, "it has no tensor, so place must be 0.");
  if (IsPointToPoint(static_cast<OpType>(op.type)))
    return Unsupported(op, "its tensor lies on a GPU; copy it to the host's memory.");
  if (devices == nullptr)
    return InvalidOperation(op, "no GPU is in use on this rank: hvd_use_gpu was not called, or has failed.");
  if (op.place == devices->place()) return Status();
  if (op.place < 0) return InvalidOperation(op, "unknown place " + std::to_string(op.place) + ".");
  return InvalidOperation(op, "its tensor lies on CUDA device " + std::to_string(op.place - 1) +
                                  ", but this rank uses CUDA device " + std::to_string(devices->place() - 1) +
                                  " only. Move the tensor there.");
}

}  // namespace hvd::engine
