// Submitting: what a rank can find wrong by itself, and the way from the C struct to a request. Runs on the caller's
// thread.
#include <algorithm>
#include <limits>

#include "engine/engine.h"

namespace hvd {
namespace {

Status Invalid(const hvd_op& op, const std::string& what) {
  return Status(Code::kInvalidArgument,
                std::string(NameOf(static_cast<OpType>(op.type))) + " '" + (op.name ? op.name : "") + "': " + what);
}
Status Unsupported(const hvd_op& op, const std::string& what) {
  return Status(Code::kUnsupported, Invalid(op, what).message());
}

Status CheckShape(const hvd_op& op) {
  if (op.ndim < 0 || op.ndim > 16)
    return Invalid(op, "tensors of 0 to 16 dimensions are supported. Received: " + std::to_string(op.ndim) + ".");
  int64_t elems = 1;
  for (int i = 0; i < op.ndim; ++i) {
    if (op.shape[i] < 0 || __builtin_mul_overflow(elems, op.shape[i], &elems) ||
        elems > std::numeric_limits<int64_t>::max() / 16) {
      return Invalid(op, "the shape has a negative or too large extent.");
    }
  }
  if (elems > 0 && op.input == nullptr && op.type != HVD_BARRIER) return Invalid(op, "the input pointer is null.");
  const bool caller_owns_output = op.type == HVD_ALLREDUCE || op.type == HVD_BROADCAST;
  if (elems > 0 && caller_owns_output && op.output == nullptr) return Invalid(op, "the output pointer is null.");
  if (op.output_bytes < 0) return Invalid(op, "output_bytes is negative.");
  return Status();
}

Status CheckReduction(const hvd_op& op, int set_size, bool power_of_two) {
  if (op.reduce_op < HVD_AVERAGE || op.reduce_op > HVD_PRODUCT)
    return Invalid(op, "unknown reduction " + std::to_string(op.reduce_op) + ".");
  const auto dtype = static_cast<DType>(op.dtype);
  if (op.type == HVD_REDUCESCATTER && op.reduce_op != HVD_SUM && op.reduce_op != HVD_AVERAGE) {
    return Invalid(op, std::string("only Sum and Average are supported. Received: ") +
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
    return Invalid(op, "without splits the first dimension must be divisible by the size of the process set (" +
                           std::to_string(set_size) + "). Received: " + std::to_string(op.shape[0]) + ".");
  }
  if (op.n_splits != set_size) {
    return Invalid(op, "splits needs one entry per member of the process set (" + std::to_string(set_size) +
                           "). Received: " + std::to_string(op.n_splits) + ".");
  }
  int64_t sum = 0;
  for (int i = 0; i < op.n_splits; ++i) {
    if (op.splits[i] < 0) return Invalid(op, "splits has a negative entry: " + std::to_string(op.splits[i]) + ".");
    sum += op.splits[i];
  }
  if (sum > op.shape[0]) {
    return Invalid(op, "the splits add up to " + std::to_string(sum) + ", more than the first dimension (" +
                           std::to_string(op.shape[0]) + ").");
  }
  return Status();
}

// Small tensors that nobody waits for yet are passed on together: so many, or when the background thread looks.
constexpr size_t kSmallBytes = 64 << 10, kGathered = 8;

}  // namespace

Status Engine::Check(const hvd_op& op, const Group& group) {
  if (!IsValidDType(op.dtype)) return Invalid(op, "unknown dtype " + std::to_string(op.dtype) + ".");
  HVD_TRY(CheckShape(op));
  const int n = group.size();
  if (op.type == HVD_ALLREDUCE || op.type == HVD_REDUCESCATTER) HVD_TRY(CheckReduction(op, n, (n & (n - 1)) == 0));
  if (op.type == HVD_ALLTOALL) HVD_TRY(CheckSplits(op, n));
  if (op.type == HVD_BROADCAST && !std::binary_search(group.ranks.begin(), group.ranks.end(), op.root_rank)) {
    return Invalid(op, "root rank " + std::to_string(op.root_rank) + " is not a member of process set " +
                           std::to_string(op.process_set) + ".");
  }
  return Status();
}

std::vector<Request> Engine::NameAll(const hvd_op* ops, int n, const std::string& counted) {
  std::vector<Request> requests(n);
  std::vector<std::string> names;
  for (int i = 0; i < n; ++i) {
    Request& r = requests[i];
    r.type = static_cast<OpType>(ops[i].type);
    r.process_set = ops[i].process_set;
    r.transient = ops[i].name == nullptr || ops[i].name[0] == '\0';
    r.name = !r.transient ? ops[i].name : counted.empty() ? submissions_.NextName(r.process_set, r.type) : counted;
    if (n > 1) names.push_back(r.name);
  }
  if (n == 1) return requests;
  const uint64_t hash = GroupHash(names);
  for (int i = 0; i < n; ++i) {
    requests[i].group_hash = hash;
    requests[i].group_size = n;
    requests[i].group_index = i;
  }
  return requests;
}

std::unique_ptr<Submitted> Engine::Prepare(const hvd_op& op, int set_size, Request* r) {
  r->dtype = static_cast<DType>(op.dtype);
  const bool reduces = r->type == OpType::kAllreduce || r->type == OpType::kReducescatter;
  if (reduces) {
    r->op = static_cast<ReduceOp>(op.reduce_op);
    r->prescale = op.prescale;
    r->postscale = op.postscale;
  }
  if (r->type == OpType::kBroadcast) r->root = op.root_rank;
  r->shape.assign(op.shape, op.shape + op.ndim);

  auto own = std::make_unique<Submitted>();
  own->process_set = r->process_set;
  own->type = r->type;
  own->name = r->name;
  Tensor& t = own->tensor;
  t.input = static_cast<const std::byte*>(op.input);
  t.output = static_cast<std::byte*>(op.output);
  t.room = static_cast<size_t>(op.output_bytes);
  t.shape = r->shape;
  t.elems = 1;
  for (const int64_t extent : t.shape) t.elems *= static_cast<size_t>(extent);
  t.row_elems = 1;
  for (size_t i = 1; i < t.shape.size(); ++i) t.row_elems *= static_cast<size_t>(t.shape[i]);
  if (r->type == OpType::kAlltoall && op.ndim > 0) {
    if (op.splits != nullptr) t.splits.assign(op.splits, op.splits + op.n_splits);
    if (op.splits == nullptr) t.splits.assign(set_size, op.shape[0] / set_size);
  }
  return own;
}

Status Engine::Submit(const hvd_op* ops, int n, uint32_t flags, std::shared_ptr<Completion>* out,
                      const std::string& counted) {
  const bool will_wait = (flags & HVD_SUBMIT_WILL_WAIT) != 0;
  if (n < 1) return Status(Code::kInvalidArgument, "hvd_submit: an empty group.");
  if (ops[0].type < HVD_ALLREDUCE || ops[0].type > HVD_JOIN)
    return Status(Code::kInvalidArgument, "hvd_submit: unknown operation type.");
  auto completion = std::make_shared<Completion>(n);
  if (ops[0].type == HVD_JOIN) {
    Submission s;
    s.kind = Submission::Kind::kJoin;
    HVD_TRY(Wish(std::move(s), completion));
    Kick(will_wait);
    *out = std::move(completion);
    return Status();
  }
  const std::shared_ptr<ProcessSets::Set> set = sets_.Find(ops[0].process_set);
  if (set == nullptr) return Invalid(ops[0], "process set " + std::to_string(ops[0].process_set) + " does not exist.");
  if (!set->member) {
    return Invalid(ops[0], "rank " + std::to_string(rank_) + " is not a member of process set " +
                               std::to_string(ops[0].process_set) + ".");
  }
  for (int i = 1; i < n; ++i) {
    if (ops[i].type != ops[0].type || ops[i].process_set != ops[0].process_set)
      return Invalid(ops[i], "all tensors of a group must have one operation and one process set.");
  }
  // Refused or not, unnamed operations are counted as on the other ranks.
  std::vector<Request> requests = NameAll(ops, n, counted);
  for (int i = 0; i < n; ++i) {
    Status refused = Check(ops[i], set->group);
    if (refused.ok()) continue;
    (void)Refuse(std::move(requests), refused.message());
    return refused;
  }
  std::vector<std::unique_ptr<Submitted>> tensors;
  tensors.reserve(n);
  for (int i = 0; i < n; ++i) {
    tensors.push_back(Prepare(ops[i], set->group.size(), &requests[i]));
    tensors.back()->completion = completion;
    tensors.back()->index = i;
  }
  size_t bytes = 0;
  for (const auto& own : tensors) bytes += own->tensor.elems * SizeOf(static_cast<DType>(ops[0].dtype));
  HVD_TRY(submissions_.Add(std::move(tensors), std::move(requests)));
  if (flags == HVD_SUBMIT_AT_ONCE) {
    RingSelf();  // the background thread drives: whatever comes back wakes it
  } else if (!will_wait && bytes < kSmallBytes && submissions_.waiting() < kGathered) {
    LookSoon();
  } else {
    Kick(will_wait);
  }
  *out = std::move(completion);
  return Status();
}

Status Engine::Refuse(OpType type, int process_set, const std::string& name, const std::string& reason) {
  const std::shared_ptr<ProcessSets::Set> set = sets_.Find(process_set);
  if (set == nullptr || !set->member)
    return Status(Code::kInvalidArgument,
                  "refuse: this rank is not a member of process set " + std::to_string(process_set) + ".");
  hvd_op op = {};
  op.type = static_cast<int32_t>(type);
  op.process_set = process_set;
  op.name = name.c_str();
  return Refuse(NameAll(&op, 1), reason);
}

// The other members must not wait for what this rank refused.
Status Engine::Refuse(std::vector<Request> what, const std::string& reason) {
  Submission s;
  s.kind = Submission::Kind::kRefuse;
  s.requests = std::move(what);
  s.reason = reason;
  HVD_TRY(submissions_.Add(std::move(s)));
  Kick(/*will_wait=*/false);
  return Status();
}

Status Engine::Wish(Submission s, const std::shared_ptr<Completion>& completion) {
  Result<uint64_t> ticket = submissions_.AddWish(completion);
  HVD_TRY(ticket.status());
  s.ticket = *ticket;
  return submissions_.Add(std::move(s));
}

Status Engine::AddSet(std::vector<int> ranks, std::shared_ptr<Completion>* out) {
  Submission s;
  s.kind = Submission::Kind::kAddSet;
  s.ranks = std::move(ranks);
  std::sort(s.ranks.begin(), s.ranks.end());
  *out = std::make_shared<Completion>(1);
  HVD_TRY(Wish(std::move(s), *out));
  Kick(/*will_wait=*/false);
  return Status();
}

Status Engine::RemoveSet(int id, std::shared_ptr<Completion>* out) {
  Submission s;
  s.kind = Submission::Kind::kRemoveSet;
  s.process_set = id;
  *out = std::make_shared<Completion>(1);
  HVD_TRY(Wish(std::move(s), *out));
  Kick(/*will_wait=*/false);
  return Status();
}

}  // namespace hvd
