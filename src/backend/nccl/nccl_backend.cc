#include "backend/nccl/nccl_backend.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "backend/cuda/results.h"
#include "backend/introduction.h"
#include "backend/talk.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "base/thread.h"
#include "collective/batch_log.h"
#include "collective/shm/collectives.h"

namespace hvd::backend::nccl {
namespace {

// Members submit a tensor when it is going to be computed, not when it is: NCCL's kernel may rightly wait for a member
// whose GPU is busy. So the device is given so many times what the host's ways are.
constexpr double kPatience = 20;
// After an abort the kernels end in milliseconds (docs/gpu.md).
constexpr double kAbortS = 5;
// Freeing a communicator may wait for the other members of this host to do so too, and these may have better to do.
constexpr double kLeaveS = 3;

// The first dimension of this rank's tensors, or what it splits them into.
std::vector<int64_t> RowsOf(const Group& group, const Batch& batch) {
  std::vector<int64_t> rows;
  if (batch.type == OpType::kAllgather) {
    for (const collective::Tensor& t : batch.tensors) rows.push_back(t.shape[0]);
    return rows;
  }
  for (int m = 0; m < group.size(); ++m) {
    for (const collective::Tensor& t : batch.tensors) rows.push_back(t.splits[m]);
  }
  return rows;
}

}  // namespace

NcclBackend::~NcclBackend() {
  LeaveAll(/*abort=*/false);
  const bool left = AwaitLeaving(MonotonicS() + kLeaveS);
  if (!left) Log(LogLevel::kDebug, "NCCL: a communicator is freed when the other ranks of this host free theirs.");
  for (std::thread& thread : leaving_) left ? thread.join() : thread.detach();
}

std::string NcclBackend::why_not() const {
  if (usable()) return "";
  std::lock_guard<std::mutex> lock(mutex_);
  return why_not_;
}

int NcclBackend::version() const { return usable() ? work_->library->version() : 0; }

Status NcclBackend::Use(std::shared_ptr<Library> library, std::shared_ptr<cuda::CudaDevices> devices, int max_ctas) {
  Result<std::unique_ptr<cuda::Stream>> made = cuda::Stream::Make(devices->events());
  HVD_TRY(made.status());
  const std::shared_ptr<const cuda::Stream> stream = std::move(*made);
  devices->memory().UsedOn(stream);
  auto scratch = std::make_unique<cuda::Scratch>(devices->memory(), *stream);
  work_.reset(new Work{std::move(devices), std::move(library), max_ctas, stream, std::move(scratch)});
  in_use_.store(true, std::memory_order_release);
  return Status();
}

void NcclBackend::Refuse(const std::string& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  why_not_ = why;
}

// The same on all members: it depends on nothing but what all know of group and batch.
std::string NcclBackend::Unsupported(const Group& group, const Batch& batch) const {
  if (!group.device_way->why_not_nccl.empty()) return group.device_way->why_not_nccl;
  if (batch.type != OpType::kAllreduce && batch.type != OpType::kReducescatter) return "";
  if (batch.op == ReduceOp::kAdasum) return "NCCL has no Adasum";
  if (!TypeOf(batch.dtype)) return std::string("NCCL cannot add ") + NameOf(batch.dtype);
  const bool scaled = batch.prescale * batch.postscale != 1.0;
  if (scaled && (!IsFloat(batch.dtype) || batch.op != ReduceOp::kSum)) return "NCCL multiplies sums of floats only";
  // Ours say what becomes of a NaN.
  const bool orders = batch.op == ReduceOp::kMin || batch.op == ReduceOp::kMax;
  if (orders && IsFloat(batch.dtype)) return "NCCL does not say what Min and Max are of a NaN";
  return "";
}

bool NcclBackend::Prepares(const Batch& batch) const {
  return batch.type == OpType::kAllgather || batch.type == OpType::kAlltoall;
}

Task NcclBackend::Prepare(const Group& group, Batch& batch) {
  const std::vector<int64_t> mine = RowsOf(group, batch);
  const auto bytes = std::as_bytes(std::span(mine));
  std::vector<std::byte> told;
  if (batch.type == OpType::kAllgather) {
    HVD_CO_TRY(co_await TellAll(*host_, group, batch.seq, bytes, &told));
  } else {
    HVD_CO_TRY(co_await TellEach(*host_, group, batch.seq, bytes, &told));
  }
  // From each member, for each tensor.
  const size_t n = batch.tensors.size();
  std::vector<int64_t> theirs(n * group.size());
  std::memcpy(theirs.data(), told.data(), theirs.size() * sizeof(int64_t));
  for (size_t i = 0; i < n; ++i) {
    for (int m = 0; m < group.size(); ++m) batch.tensors[i].received_rows.push_back(theirs[m * n + i]);
  }
  co_return Status();
}

Task NcclBackend::Execute(const Group& group, Batch& batch) {
  collective::LogWay(batch, "by NCCL");
  std::shared_ptr<Member> member;
  HVD_CO_TRY(co_await Join(group, &member));
  launching_ = true;
  HVD_CO_TRY(WaitForInputs(batch));
  HVD_CO_TRY(PlaceResults(group, batch));
  const Call call{group,          batch, *member, *work_->devices->context(), *work_->stream, work_->devices->packing(),
                  *work_->scratch};
  switch (batch.type) {
    case OpType::kAllreduce:
      HVD_CO_TRY(co_await Allreduce(call));
      break;
    case OpType::kReducescatter:
      HVD_CO_TRY(co_await Reducescatter(call));
      break;
    case OpType::kBroadcast:
      HVD_CO_TRY(co_await Broadcast(call));
      break;
    case OpType::kAllgather:
      HVD_CO_TRY(co_await Allgather(call));
      break;
    case OpType::kAlltoall:
      HVD_CO_TRY(co_await Alltoall(call));
      break;
    case OpType::kBarrier:
    case OpType::kJoin:
      break;
  }
  co_return NoteLaunched(batch);
}

// The communicator of these ranks, made with their first batch.
Task NcclBackend::Join(const Group& group, std::shared_ptr<Member>* member) {
  std::shared_ptr<Member>& of_ranks = members_[group.ranks];
  if (of_ranks == nullptr) {
    Member::Place place{group.size(), group.index, {}, work_->max_ctas};
    place.id.bytes = group.device_way->nccl_id;
    Result<std::shared_ptr<Member>> begun = Member::Begin(work_->library, work_->devices->context(), place);
    HVD_CO_TRY(begun.status());
    of_ranks = *begun;
    *member = *begun;
    co_return co_await (*member)->Settled("ncclCommInitRankConfig");
  }
  *member = of_ranks;
  co_return Status();
}

Status NcclBackend::WaitForInputs(const Batch& batch) const {
  const DeviceEvent* before = nullptr;
  for (const collective::Tensor& t : batch.tensors) {
    const DeviceEvent* const made = t.device->made.get();
    if (made == nullptr || made == before) continue;
    before = made;
    HVD_TRY(before->HoldBack(work_->stream->handle()));
  }
  return Status();
}

Status NcclBackend::PlaceResults(const Group& group, Batch& batch) const {
  if (batch.type == OpType::kAllreduce || batch.type == OpType::kBroadcast) return Status();
  for (collective::Tensor& t : batch.tensors) {
    size_t rows = 0;
    for (const int64_t from_one : t.received_rows) rows += static_cast<size_t>(from_one);
    if (batch.type == OpType::kReducescatter)
      rows = collective::shm::BlockOfMember(static_cast<size_t>(t.shape[0]), group.size(), group.index).count;
    const size_t bytes = rows * t.row_elems * SizeOf(batch.dtype);
    HVD_TRY(cuda::PlaceResult(work_->devices->memory(), *work_->stream, bytes, &t));
  }
  return Status();
}

Status NcclBackend::NoteLaunched(Batch& batch) {
  const Result<std::shared_ptr<cuda::Event>> end = work_->stream->Record();
  HVD_TRY(end.status());
  for (collective::Tensor& t : batch.tensors) t.device->ready = *end;
  ForgetEnded();
  if (launched_.empty()) moved_at_ = MonotonicS();
  launched_.push_back({*end, NameOf(batch.type)});
  launching_ = false;
  return Status();
}

void NcclBackend::ForgetEnded() {
  for (; !launched_.empty() && launched_.front().end->Reached(); launched_.pop_front()) moved_at_ = MonotonicS();
}

double NcclBackend::next_check(double timeout_s) const {
  return launched_.empty() ? std::numeric_limits<double>::infinity() : moved_at_ + kPatience * timeout_s;
}

Status NcclBackend::CheckDevices(double now, double timeout_s) {
  while (!launched_.empty()) {
    bool ended = false;
    HVD_TRY(launched_.front().end->Ask(&ended));
    if (!ended) break;
    launched_.pop_front();
    moved_at_ = now;
  }
  if (now < next_check(timeout_s)) return Status();
  return Status(Code::kTimeout, "NCCL: an operation on the GPU (" + launched_.front().what +
                                    ") has made no progress for " +
                                    std::to_string(static_cast<int>(kPatience * timeout_s)) +
                                    " s (20 times HOROVOD_GLOO_TIMEOUT_SECONDS). Has every rank reached it, and are "
                                    "their GPUs free? NCCL_DEBUG=INFO tells more.");
}

void NcclBackend::Abort() {
  LeaveAll(/*abort=*/true);
  const double deadline = MonotonicS() + kAbortS;
  if (launching_) {  // dropped on its way: until the abort is through, a thread of NCCL may put it on the stream
    AwaitLeaving(deadline);
    const Result<std::shared_ptr<cuda::Event>> end = work_->stream->Record();
    if (end.ok()) launched_.push_back({*end, "operation"});
  }
  for (const Launched& launched : launched_) {
    while (!launched.end->Reached() && MonotonicS() < deadline) std::this_thread::yield();
    if (!launched.end->Reached()) {
      Log(LogLevel::kError, "NCCL: the GPU goes on with an " + launched.what + " that was aborted 5 s ago.");
      break;
    }
  }
  launched_.clear();
}

// Each in a thread of its own: it takes up to a second, whoever waits.
void NcclBackend::LeaveAll(bool abort) {
  for (auto& [ranks, member] : std::exchange(members_, {})) {
    if (member == nullptr) continue;
    ++*still_in_nccl_;
    auto leave = [member = member, abort, count = still_in_nccl_] {
      member->Leave(abort);
      --*count;
    };
    Result<std::thread> thread = StartThread("the thread that leaves NCCL", leave);
    if (thread.ok()) {
      leaving_.push_back(std::move(*thread));
    } else {
      leave();
    }
  }
}

bool NcclBackend::AwaitLeaving(double deadline) const {
  while (*still_in_nccl_ > 0 && MonotonicS() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return *still_in_nccl_ == 0;
}

std::string NcclBackend::ActivityName(const Group&, const Batch& batch) const {
  return std::string("NCCL_") + ActivityOf(batch.type);
}

}  // namespace hvd::backend::nccl
