// From the C struct to a request.
#include "engine/entry/intake.h"

#include <algorithm>

#include "base/text.h"
#include "engine/entry/checks.h"
#include "engine/express/exchange.h"
#include "engine/wake/clock.h"
#include "negotiation/values/pair.h"
#include "negotiation/values/signature.h"

namespace hvd::engine {
namespace {

constexpr size_t kMostReasonBytes = 4096;  // of a refusal, as the other members get it
// Small tensors that nobody waits for yet are passed on together: so many, or when the background thread looks.
constexpr size_t kSmallBytes = 64 << 10, kGathered = 8;

// What the request says of the tensor.
void Describe(const hvd_op& op, negotiation::Request* r) {
  r->dtype = static_cast<DType>(op.dtype);
  if (negotiation::HasReduceOp(r->type)) {
    r->op = static_cast<ReduceOp>(op.reduce_op);
    r->prescale = op.prescale;
    r->postscale = op.postscale;
  }
  if (r->type == OpType::kBroadcast) r->root = op.root_rank;
  r->shape.assign(op.shape, op.shape + op.ndim);
  r->on_device = op.place != kOnHost;
}

collective::Tensor TensorOf(const hvd_op& op, int set_size) {
  collective::Tensor t;
  t.input = static_cast<const std::byte*>(op.input);
  t.output = static_cast<std::byte*>(op.output);
  t.room = static_cast<size_t>(op.output_bytes);
  if (op.place != kOnHost) t.device.reset(new collective::OnDevice{op.stream, {}, {}});
  t.shape.assign(op.shape, op.shape + op.ndim);
  t.elems = 1;
  for (const int64_t extent : t.shape) t.elems *= static_cast<size_t>(extent);
  t.row_elems = 1;
  for (size_t i = 1; i < t.shape.size(); ++i) t.row_elems *= static_cast<size_t>(t.shape[i]);
  if (op.type == HVD_ALLTOALL && op.ndim > 0) {
    if (op.splits != nullptr) t.splits.assign(op.splits, op.splits + op.n_splits);
    if (op.splits == nullptr) t.splits.assign(set_size, op.shape[0] / set_size);
  }
  return t;
}

// Of a send: what has become of an earlier one of its pair, which had returned.
Status FailedBefore(const Status& why) {
  return why.Because("this send was not begun, because an earlier one has failed since it returned");
}

std::unique_ptr<Submitted> Prepare(const hvd_op& op, int set_size, const negotiation::Request& request) {
  auto own = std::make_unique<Submitted>();
  own->process_set = request.process_set;
  own->type = request.type;
  own->name = request.name;
  own->dtype = request.dtype;
  own->since = NowS();
  own->tensor = TensorOf(op, set_size);
  return own;
}

}  // namespace

Status Intake::Submit(const hvd_op* ops, int n, uint32_t flags, Out out, const std::string& counted) {
  if (n < 1) return Status(Code::kInvalidArgument, "hvd_submit: an empty group.");
  if (ops[0].type < HVD_ALLREDUCE || ops[0].type > HVD_RECV)
    return Status(Code::kInvalidArgument, "hvd_submit: unknown operation type.");
  if (ops[0].type == HVD_JOIN) {
    HVD_TRY(Add(submission::Join(), out));
    if ((flags & HVD_SUBMIT_WILL_WAIT) == 0) tools_.driver->Kick();
    return Status();
  }
  std::shared_ptr<ProcessSets::Set> set;
  HVD_TRY(Member(ops[0], &set));
  HVD_TRY(CheckGroup(ops, n));
  if (IsPointToPoint(static_cast<OpType>(ops[0].type))) return SubmitOfPair(ops[0], set->group, flags, out);
  auto completion = std::make_shared<Completion>(n);
  // Refused or not, unnamed operations are counted as on the other ranks.
  std::vector<negotiation::Request> requests = NameAll(ops, n, counted);
  std::vector<std::shared_ptr<DeviceEvent>> made;
  Status refused = CheckEach(ops, n, set->group);
  if (refused.ok()) refused = Mark(ops, n, &made);
  if (!refused.ok()) {
    (void)Refuse(std::move(requests), refused.message());
    return refused;
  }
  std::vector<std::unique_ptr<Submitted>> tensors;
  tensors.reserve(n);
  size_t bytes = 0;
  for (int i = 0; i < n; ++i) {
    Describe(ops[i], &requests[i]);
    tensors.push_back(Prepare(ops[i], set->group.size(), requests[i]));
    tensors.back()->completion = completion;
    tensors.back()->index = i;
    if (tensors.back()->tensor.device) tensors.back()->tensor.device->made = std::move(made[i]);
    bytes += tensors.back()->tensor.elems * SizeOf(requests[0].dtype);
  }
  // A timeline shows batches.
  const bool batches_only = tools_.timeline->active() || tools_.backends->batches_only();
  if (n == 1 && (flags & HVD_SUBMIT_WILL_WAIT) != 0 && !batches_only) requests[0].payload = PayloadOf(*ops, set->group);
  HVD_TRY(tools_.submissions->Add(std::move(tensors), std::move(requests)));
  Announce(flags, bytes);
  *out = std::move(completion);
  return Status();
}

Status Intake::SubmitOfPair(const hvd_op& op, const collective::Group& group, uint32_t flags, Out out) {
  HVD_TRY(CheckPartner(op, group));
  const auto type = static_cast<OpType>(op.type);
  const bool sends = type == OpType::kSend, waits = (flags & HVD_SUBMIT_WILL_WAIT) != 0;
  const negotiation::Pair pair{sends ? rank_ : op.root_rank, sends ? op.root_rank : rank_};
  const std::string pair_name = PairName(pair), label = op.name != nullptr ? op.name : "";
  std::vector<negotiation::Request> requests(1);
  requests[0].type = OpType::kSend;
  requests[0].process_set = op.process_set;
  requests[0].name = pair_name;
  const uint64_t number = tools_.submissions->NextNumber(op.process_set, type, pair_name);
  Status refused = sends ? FailedBefore(tools_.submissions->TakeFailure(op.process_set, pair_name)) : Status();
  if (refused.ok()) refused = CheckEach(&op, 1, group);
  if (!refused.ok()) {  // it keeps its place in the order of the pair: the other rank's recv fails too
    if (pair.from != pair.to) (void)Refuse(std::move(requests), refused.message());
    return refused;
  }
  Describe(op, &requests[0]);
  std::vector<std::unique_ptr<Submitted>> tensors(1);
  tensors[0] = Prepare(op, group.size(), requests[0]);
  Submitted& own = *tensors[0];
  own.type = type;
  own.name = OwnName(type, pair, number, label);
  auto completion = own.completion = std::make_shared<Completion>(1);
  const size_t bytes = own.tensor.elems * SizeOf(own.dtype);
  const bool to_self = pair.from == pair.to;
  if (sends && waits) own.copy = (to_self ? self_copies_ : send_copies_)->Copy(op.input, bytes, /*limited=*/!to_self);
  const bool returns = own.copy != nullptr;
  if (returns) {
    own.tensor.input = own.copy->data;
    own.completion = std::make_shared<Completion>(1);
  }
  HVD_TRY(tools_.submissions->Add(std::move(tensors), std::move(requests), waits));
  if (returns) {
    Completion::Due nobody;
    completion->Arrive(Status(), &nobody);
    tools_.driver->Kick();
  } else {
    Announce(flags, bytes);
  }
  *out = std::move(completion);
  return Status();
}

Status Intake::CheckEach(const hvd_op* ops, int n, const collective::Group& group) const {
  for (int i = 0; i < n; ++i) {
    HVD_TRY(CheckOperation(ops[i], group));
    if (ops[i].place != kOnHost) HVD_TRY(CheckPlace(ops[i], tools_.backends->devices()));
  }
  return Status();
}

// In the thread that submits, and now: what it puts on its streams later need not be waited for.
Status Intake::Mark(const hvd_op* ops, int n, std::vector<std::shared_ptr<DeviceEvent>>* made) const {
  for (int i = 0; i < n; ++i) {
    if (ops[i].place == kOnHost) continue;
    made->resize(n);
    int before = 0;
    while (before < i && (ops[before].place == kOnHost || ops[before].stream != ops[i].stream)) ++before;
    if (before < i) {
      (*made)[i] = (*made)[before];
      continue;
    }
    Result<std::shared_ptr<DeviceEvent>> event = tools_.backends->devices()->Mark(ops[i].stream);
    if (!event.ok()) return InvalidOperation(ops[i], event.status());
    (*made)[i] = std::move(*event);
  }
  return Status();
}

Status Intake::Member(const hvd_op& op, std::shared_ptr<ProcessSets::Set>* set) const {
  *set = tools_.sets->Find(op.process_set);
  if (*set != nullptr && (*set)->member) return Status();
  const std::string which = "process set " + std::to_string(op.process_set);
  if (*set == nullptr) return InvalidOperation(op, which + " does not exist.");
  return InvalidOperation(op, "rank " + std::to_string(rank_) + " is not a member of " + which + ".");
}

Status Intake::CheckGroup(const hvd_op* ops, int n) const {
  for (int i = 0; i < n; ++i) HVD_TRY(CheckName(ops[i]));
  if (n > 1 && IsPointToPoint(static_cast<OpType>(ops[0].type)))
    return InvalidOperation(ops[0], "it is of one tensor. Received: " + std::to_string(n) + ".");
  for (int i = 1; i < n; ++i) {
    if (ops[i].type != ops[0].type || ops[i].process_set != ops[0].process_set)
      return InvalidOperation(ops[i], "all tensors of a group must have one operation and one process set.");
  }
  return Status();
}

// A thread that will wait drives at once, and needs nobody.
void Intake::Announce(uint32_t flags, size_t bytes) {
  if (flags == HVD_SUBMIT_AT_ONCE) return tools_.waker->RingSelf();  // the background thread: what comes back wakes it
  if ((flags & HVD_SUBMIT_WILL_WAIT) != 0) return;
  if (alone_) return tools_.driver->Poll();  // there is nobody to wait for, and nothing to gather
  if (bytes < kSmallBytes && tools_.submissions->waiting() < kGathered) return tools_.waker->LookSoon();
  tools_.driver->Kick();
}

std::vector<negotiation::Request> Intake::NameAll(const hvd_op* ops, int n, const std::string& counted) {
  std::vector<negotiation::Request> requests(n);
  std::vector<std::string> names;
  for (int i = 0; i < n; ++i) {
    negotiation::Request& r = requests[i];
    r.type = static_cast<OpType>(ops[i].type);
    r.process_set = ops[i].process_set;
    r.transient = ops[i].name == nullptr || ops[i].name[0] == '\0';
    r.name = !r.transient      ? ops[i].name
             : counted.empty() ? tools_.submissions->NextName(r.process_set, r.type)
                               : counted;
    if (n > 1) names.push_back(r.name);
  }
  if (n == 1) return requests;
  const uint64_t hash = negotiation::GroupHash(names);
  for (int i = 0; i < n; ++i) {
    requests[i].group_hash = hash;
    requests[i].group_size = n;
    requests[i].group_index = i;
  }
  return requests;
}

Status Intake::Refuse(OpType type, int process_set, const std::string& name, const std::string& reason) {
  const std::shared_ptr<ProcessSets::Set> set = tools_.sets->Find(process_set);
  if (set == nullptr || !set->member)
    return Status(Code::kInvalidArgument,
                  "refuse: this rank is not a member of process set " + std::to_string(process_set) + ".");
  hvd_op op = {};
  op.type = static_cast<int32_t>(type);
  op.process_set = process_set;
  op.name = name.c_str();
  HVD_TRY(CheckName(op));
  return Refuse(NameAll(&op, 1), reason);
}

Status Intake::Refuse(std::vector<negotiation::Request> what, const std::string& reason) {
  HVD_TRY(tools_.submissions->Add(submission::Refusal{std::move(what), Shortened(reason, kMostReasonBytes)}));
  tools_.driver->Kick();
  return Status();
}

template <class Wish>
Status Intake::Add(Wish wish, Out out) {
  auto completion = std::make_shared<Completion>(1);
  Result<uint64_t> ticket = tools_.submissions->AddWish(completion);
  HVD_TRY(ticket.status());
  wish.ticket = *ticket;
  HVD_TRY(tools_.submissions->Add(std::move(wish)));
  *out = std::move(completion);
  return Status();
}

Status Intake::AddSet(std::vector<int> ranks, bool by_members, Out out) {
  std::sort(ranks.begin(), ranks.end());
  if (by_members) HVD_TRY(CheckMembers(ranks));
  HVD_TRY(Add(submission::AddSet{std::move(ranks), by_members}, out));
  tools_.driver->Kick();
  return Status();
}

Status Intake::CheckMembers(const std::vector<int>& ranks) {
  const int size = static_cast<int>(tools_.sets->Ranks(0).size());
  const bool exist = !ranks.empty() && ranks.front() >= 0 && ranks.back() < size;
  if (!exist || std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
    return Status(Code::kInvalidArgument,
                  "add_process_set: the members must be different ranks from 0 to " + std::to_string(size - 1) + ".");
  }
  if (std::binary_search(ranks.begin(), ranks.end(), rank_)) return Status();
  return Status(Code::kInvalidArgument, "add_process_set: rank " + std::to_string(rank_) +
                                            " is none of the members, who ask for the process set alone.");
}

Status Intake::RemoveSet(int id, Out out) {
  HVD_TRY(Add(submission::RemoveSet{id}, out));
  tools_.driver->Kick();
  return Status();
}

Status Intake::ChangeParameters(const negotiation::Parameters& to) {
  if (rank_ != 0) {
    return Status(Code::kInvalidArgument,
                  "parameters: rank " + std::to_string(rank_) + " cannot change them for the job; let rank 0 do it.");
  }
  HVD_TRY(negotiation::Check(to));
  HVD_TRY(tools_.submissions->Add(submission::Change{to}));
  tools_.driver->Kick();
  return Status();
}

Status Intake::BeginTrace(const negotiation::TraceOrder& order) {
  HVD_TRY(tools_.submissions->Add(submission::Trace{order}));
  tools_.driver->Kick();
  return Status();
}

Status Intake::EndTrace(const negotiation::TraceOrder& order, Out out, uint64_t* ticket) {
  auto completion = std::make_shared<Completion>(1);
  Result<uint64_t> wish = tools_.submissions->AddWish(completion);
  HVD_TRY(wish.status());
  *ticket = *wish;
  *out = std::move(completion);
  return tools_.submissions->Add(submission::Trace{order, *wish});
}

Status Intake::Goodbye(const std::string& last_words) {
  return tools_.submissions->Add(submission::Goodbye{last_words});
}

// A submission like others, for the driver: a thread that waits keeps the role for as long as it likes.
Status Intake::Abort(submission::Abort how, Out out) { return Add(std::move(how), out); }

}  // namespace hvd::engine
