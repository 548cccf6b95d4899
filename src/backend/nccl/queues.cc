#include "backend/nccl/queues.h"

#include <chrono>
#include <limits>

#include "base/log.h"
#include "base/monotonic.h"
#include "base/thread.h"

namespace hvd::backend::nccl {
namespace {

// Members submit a tensor when it is going to be computed, not when it is: NCCL's kernel may rightly wait for a member
// whose GPU is busy. So the device is given so many times what the host's ways are.
constexpr double kPatience = 20;
// After an abort the kernels end in milliseconds (docs/gpu.md).
constexpr double kAbortS = 5;
// Freeing a communicator may wait for the other members of this host to do so too, and these may have better to do.
constexpr double kLeaveS = 3;

}  // namespace

Queues::~Queues() {
  LeaveAll(/*abort=*/false);
  const bool left = AwaitLeaving(MonotonicS() + kLeaveS);
  if (!left) Log(LogLevel::kDebug, "NCCL: a communicator is freed when the other ranks of this host free theirs.");
  for (std::thread& thread : leaving_) left ? thread.join() : thread.detach();
}

Status Queues::Use(std::shared_ptr<Library> library, std::shared_ptr<cuda::CudaDevices> devices, const Limits& limits) {
  std::vector<Queue> queues;
  for (int i = 0; i < limits.streams; ++i) {
    Result<std::unique_ptr<cuda::Stream>> made = cuda::Stream::Make(devices->events());
    HVD_TRY(made.status());
    std::shared_ptr<const cuda::Stream> stream = std::move(*made);
    devices->memory().UsedOn(stream);
    auto scratch = std::make_unique<cuda::Scratch>(devices->memory(), *stream);
    queues.push_back({std::move(stream), std::move(scratch)});
  }
  work_.reset(new Work{std::move(devices), std::move(library), limits.max_ctas, std::move(queues)});
  in_use_.store(true, std::memory_order_release);
  return Status();
}

void Queues::Refuse(const std::string& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  why_not_ = why;
}

std::string Queues::why_not() const {
  if (usable()) return "";
  std::lock_guard<std::mutex> lock(mutex_);
  return why_not_;
}

Task Queues::Join(std::vector<int> ranks, int index, const UniqueId& id, int queue, Phases* phases,
                  std::shared_ptr<Member>* member) {
  const Member::Place place{static_cast<int>(ranks.size()), index, id, work_->max_ctas};
  std::shared_ptr<Member>& of_ranks = members_[{std::move(ranks), queue}];
  if (of_ranks == nullptr) {
    if (phases != nullptr) phases->BeginOnHost("INIT_NCCL");
    Result<std::shared_ptr<Member>> begun = Member::Begin(work_->library, work_->devices->context(), place);
    HVD_CO_TRY(begun.status());
    of_ranks = *begun;
    *member = *begun;
    co_return co_await (*member)->Settled("ncclCommInitRankConfig");
  }
  *member = of_ranks;
  co_return Status();
}

Status Queues::WaitForInputs(const collective::Batch& batch, const Queue& queue) {
  launching_ = true;
  const DeviceEvent* before = nullptr;
  for (const collective::Tensor& t : batch.tensors) {
    const DeviceEvent* const made = t.device->made.get();
    if (made == nullptr || made == before) continue;
    before = made;
    HVD_TRY(before->HoldBack(queue.stream->handle()));
  }
  return Status();
}

Status Queues::NoteLaunched(const Queue& queue, const char* what, std::shared_ptr<cuda::Event>* end) {
  Result<std::shared_ptr<cuda::Event>> recorded = queue.stream->Record();
  HVD_TRY(recorded.status());
  *end = std::move(*recorded);
  for (; !launched_.empty() && launched_.front().end->Reached(); launched_.pop_front()) moved_at_ = MonotonicS();
  if (launched_.empty()) moved_at_ = MonotonicS();
  launched_.push_back({*end, what});
  return Status();
}

Status Queues::NoteEnd(const Queue& queue, collective::Batch* batch) {
  if (batch->phases != nullptr) batch->phases->End(queue.stream->handle());
  std::shared_ptr<cuda::Event> end;
  HVD_TRY(NoteLaunched(queue, NameOf(batch->type), &end));
  for (collective::Tensor& t : batch->tensors) t.device->ready = end;
  launching_ = false;
  return Status();
}

double Queues::next_check(double timeout_s) const {
  return launched_.empty() ? std::numeric_limits<double>::infinity() : moved_at_ + kPatience * timeout_s;
}

Status Queues::CheckDevices(double now, double timeout_s) {
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

void Queues::Abort() {
  LeaveAll(/*abort=*/true);
  const double deadline = MonotonicS() + kAbortS;
  if (launching_) {  // dropped on its way: until the abort is through, a thread of NCCL may put it on a stream
    AwaitLeaving(deadline);
    for (const Queue& queue : work_->queues) {
      const Result<std::shared_ptr<cuda::Event>> end = queue.stream->Record();
      if (end.ok()) launched_.push_back({*end, "operation"});
    }
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
void Queues::LeaveAll(bool abort) {
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

bool Queues::AwaitLeaving(double deadline) const {
  while (*still_in_nccl_ > 0 && MonotonicS() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return *still_in_nccl_ == 0;
}

}  // namespace hvd::backend::nccl
