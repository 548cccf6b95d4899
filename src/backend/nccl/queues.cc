#include "backend/nccl/queues.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/monotonic.h"
#include "base/polled.h"
#include "base/thread.h"

namespace hvd::backend::nccl {
namespace {

// A device that stands still takes about a thousand commands; with one more the caller would stand still too, and could
// abort nothing.
constexpr size_t kMostCommands = 512;
// Of one batch before the device is asked whether there is room for more.
constexpr size_t kWaitsAtOnce = 128;
// After an abort the kernels end in milliseconds (docs/gpu.md).
constexpr double kAbortS = 5;
// Freeing a communicator may wait for the other members of this host to do so too, and these may have better to do.
constexpr double kLeaveS = 3;

}  // namespace

Queues::~Queues() {
  LeaveAll(/*abort=*/false);
  const bool left = AwaitLeaving(MonotonicS() + kLeaveS);
  if (!left) Log(LogLevel::kDebug, Name() + ": a communicator is freed when the other ranks of this host free theirs.");
  for (std::thread& thread : leaving_) left ? thread.join() : thread.detach();
}

Status Queues::Use(std::shared_ptr<Library> library, std::shared_ptr<cuda::CudaDevices> devices, int streams) {
  std::vector<Queue> queues;
  for (int i = 0; i < streams; ++i) {
    Result<std::unique_ptr<cuda::Stream>> made = cuda::Stream::Make(devices->events());
    HVD_TRY(made.status());
    std::shared_ptr<const cuda::Stream> stream = std::move(*made);
    devices->memory().UsedOn(stream);
    auto scratch = std::make_unique<cuda::Scratch>(devices->memory(), *stream);
    queues.push_back({std::move(stream), std::move(scratch)});
  }
  work_.reset(new Work{std::move(devices), std::move(library), std::move(queues)});
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

Task Queues::Join(Membership which, collective::Batch* batch, std::shared_ptr<Member>* member) {
  const Member::Place place{static_cast<int>(which.ranks.size()), which.index, which.id, which.max_ctas};
  std::shared_ptr<Member>& of_ranks = members_[{std::move(which.ranks), which.queue}];
  if (of_ranks == nullptr) {
    if (batch->phases != nullptr) batch->phases->BeginOnHost("INIT_NCCL");
    Result<std::shared_ptr<Member>> begun = Member::Begin(work_->library, work_->devices->context(), place);
    HVD_CO_TRY(begun.status());
    of_ranks = *begun;
    *member = *begun;
    batch->awaits_device = true;
    const Status ready = co_await (*member)->Ready();
    batch->awaits_device = false;
    co_return ready;
  }
  *member = of_ranks;
  co_return Status();
}

Task Queues::AwaitRoom(size_t commands, collective::Batch* batch) {
  constexpr double kLivelyS = 0.001;
  batch->awaits_device = true;
  co_await Polled(
      [&] {
        ForgetEnded();
        return launched_.empty() || commands_ + unnoted_ + commands <= kMostCommands;
      },
      kLivelyS);
  batch->awaits_device = false;
  co_return Status();
}

// The waits alone may be more than the device takes: each tensor may have a moment of its own.
Task Queues::Begin(collective::Batch* batch, const Queue& queue, size_t commands) {
  HVD_CO_TRY(co_await AwaitRoom(std::min(kWaitsAtOnce, batch->tensors.size()), batch));
  launching_ = true;
  const DeviceEvent* before = nullptr;
  for (const collective::Tensor& t : batch->tensors) {
    const DeviceEvent* const made = t.device->made.get();
    if (made == nullptr || made == before) continue;
    before = made;
    if (unnoted_ == kWaitsAtOnce) {
      std::shared_ptr<cuda::Event> unused;
      HVD_CO_TRY(NoteLaunched(queue, NameOf(batch->type), &unused));
      HVD_CO_TRY(co_await AwaitRoom(kWaitsAtOnce, batch));
    }
    HVD_CO_TRY(before->HoldBack(queue.stream->handle()));
    ++unnoted_;
  }
  HVD_CO_TRY(co_await AwaitRoom(commands, batch));
  unnoted_ += commands;
  co_return Status();
}

Status Queues::NoteLaunched(const Queue& queue, const char* what, std::shared_ptr<cuda::Event>* end) {
  Result<std::shared_ptr<cuda::Event>> recorded = queue.stream->Record();
  HVD_TRY(recorded.status());
  *end = std::move(*recorded);
  ForgetEnded();
  if (launched_.empty()) moved_at_ = MonotonicS();
  const size_t commands = std::exchange(unnoted_, 0);
  launched_.push_back({*end, what, commands});
  commands_ += commands;
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

void Queues::ForgetEnded() {
  while (!launched_.empty() && launched_.front().end->Reached()) {
    ForgetFirst();
    moved_at_ = MonotonicS();
  }
}

void Queues::ForgetFirst() {
  commands_ -= launched_.front().commands;
  launched_.pop_front();
}

double Queues::next_check(double timeout_s) const {
  return launched_.empty() ? std::numeric_limits<double>::infinity() : moved_at_ + kDevicePatience * timeout_s;
}

Status Queues::CheckDevices(double now, double timeout_s) {
  while (!launched_.empty()) {
    bool ended = false;
    HVD_TRY(launched_.front().end->Ask(&ended));
    if (!ended) break;
    ForgetFirst();
    moved_at_ = now;
  }
  if (now < next_check(timeout_s)) return Status();
  return Status(Code::kTimeout, Name() + ": an operation on the GPU (" + launched_.front().what +
                                    ") has made no progress for " +
                                    std::to_string(static_cast<int>(kDevicePatience * timeout_s)) +
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
      if (end.ok()) launched_.push_back({*end, "operation", 0});
    }
  }
  for (const Launched& launched : launched_) {
    while (!launched.end->Reached() && MonotonicS() < deadline) std::this_thread::yield();
    if (!launched.end->Reached()) {
      Log(LogLevel::kError, Name() + ": the GPU still runs an " + launched.what + " that was aborted 5 s ago.");
      break;
    }
  }
  launched_.clear();
  commands_ = unnoted_ = 0;
}

// Each in a thread of its own, because it takes up to a second.
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
