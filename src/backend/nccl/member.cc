#include "backend/nccl/member.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <new>

#include "base/half.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "base/polled.h"
#include "base/thread.h"

namespace hvd::backend::nccl {
namespace {

constexpr double kLivelyS = 0.001;  // most calls have ended by then, the first one takes half a second
// For so long Leave waits for a call to reach NCCL, and to return from an aborted communicator: milliseconds, mostly.
constexpr double kReturnS = 2;
// So long after it has said that it is about to call ncclGroupEnd, a thread is inside it.
constexpr std::chrono::milliseconds kEnter{200};
// Then what is known is forgotten: calls are made in the thread once more.
constexpr size_t kMostKnown = 10000;
// Programs that multiply by a new factor in every step must not fill the memory.
constexpr size_t kMostSums = 64;

union Scalar {
  float f32;
  double f64;
  uint16_t bits;
};

Scalar ScalarOf(DType dtype, double factor) {
  Scalar scalar = {};
  if (dtype == DType::kFloat64) scalar.f64 = factor;
  if (dtype == DType::kFloat32) scalar.f32 = static_cast<float>(factor);
  if (dtype == DType::kFloat16) scalar.bits = HalfFromFloat(static_cast<float>(factor));
  if (dtype == DType::kBfloat16) scalar.bits = Bfloat16FromFloat(static_cast<float>(factor));
  return scalar;
}

// Begin together. The group is closed whatever comes of them: it belongs to the thread. `may_end` is asked before the
// one call that may wait; if it says no the thread is about to end, and its group with it.
template <class MayEnd>
Status CallAll(const Library& library, const cuda::Context& context, Communicator on,
               const std::vector<Operation>& operations, Stream stream, MayEnd may_end) {
  const cuda::Current current(context);
  HVD_TRY(library.StartGroup());
  Status made;
  try {
    for (size_t i = 0; i < operations.size() && made.ok(); ++i) made = library.Put(operations[i], on, stream);
  } catch (const std::bad_alloc&) {
    made = OutOfMemory();
  }
  if (!may_end()) return Status(Code::kShutdown, "called off");
  const Status ended = library.EndGroup(on);
  return made.ok() ? ended : made;
}

uint64_t Mixed(uint64_t into, uint64_t number) { return (into ^ number) * 0x9e3779b97f4a7c15u ^ (into >> 29); }

}  // namespace

Result<std::shared_ptr<Member>> Member::Begin(std::shared_ptr<Library> library,
                                              std::shared_ptr<const cuda::Context> context, const Place& place) {
  std::shared_ptr<Member> member(new Member(std::move(library), std::move(context), place));
  Config config;
  config.blocking = 0;
  config.max_ctas = 1;  // it moves nothing
  const cuda::Current current(*member->context_);
  HVD_TRY(member->library_->Begin(&member->root_, place.size, place.id, place.index, config));
  return member;
}

Member::~Member() { Leave(/*abort=*/true); }

Task Member::Ready() {
  HVD_CO_TRY(co_await Settled("ncclCommInitRankConfig", root_));
  Config config;
  config.blocking = 1;
  if (place_.max_ctas > 0) config.max_ctas = place_.max_ctas;
  Status begun;
  {
    const cuda::Current current(*context_);
    begun = library_->Duplicate(&communicator_, root_, place_.index, config);
  }
  HVD_CO_TRY(std::move(begun));
  HVD_CO_TRY(co_await Settled("ncclCommSplit", root_));
  ready_ = true;
  co_return co_await Settled("ncclCommSplit", communicator_);
}

Task Member::Settled(const char* function, Communicator of) const {
  int state = kSuccess;
  co_await Polled([&] { return (state = library_->State(of)) != kInProgress; }, kLivelyS);
  co_return state == kSuccess ? Status() : library_->Failed(function, state, of);
}

Task Member::Put(std::vector<Operation> operations, Stream stream, const char* function) {
  if (IsNew(operations)) {
    HVD_CO_TRY(co_await PutFromThread(std::move(operations), stream));
  } else {
    HVD_CO_TRY(CallAll(*library_, *context_, communicator_, operations, stream, [] { return true; }));
  }
  co_return co_await Settled(function, communicator_);
}

// NCCL chooses its way (rings, trees, NVLink SHARP) by all that a group holds: kinds, operations, types and sizes.
// Whether this group has not been called yet. Scaled sums are one operation to it; for messages there is one way to
// each peer.
bool Member::IsNew(const std::vector<Operation>& operations) {
  uint64_t number = 0;
  bool news = false;
  for (const Operation& o : operations) {
    if (o.kind == Operation::kSend || o.kind == Operation::kReceive) {
      news |= peers_.emplace(o.kind, o.peer).second;
      continue;
    }
    number = Mixed(number, static_cast<uint64_t>(o.kind) + 1);
    number = Mixed(number, o.count);
    number = Mixed(number, static_cast<uint64_t>(o.type) << 32 | static_cast<uint32_t>(std::min(o.op, kMin + 1)));
    number = Mixed(number, static_cast<uint64_t>(o.peer));
  }
  if (known_.size() >= kMostKnown) known_.clear();
  return known_.insert(number).second || news;
}

Task Member::PutFromThread(std::vector<Operation> operations, Stream stream) {
  if (thread_.joinable()) thread_.join();  // its calls have ended
  away_ = std::make_shared<Away>();
  Result<std::thread> thread = StartThread(
      "the thread that connects NCCL",
      [library = library_, context = context_, communicator = communicator_, operations = std::move(operations), stream,
       away = away_] { away->CallAll(*library, *context, communicator, operations, stream); });
  HVD_CO_TRY(thread.status());
  thread_ = std::move(*thread);
  co_await Polled([&] { return away_->ended(); }, kLivelyS);
  co_return away_->status;
}

void Member::Away::CallAll(const Library& library, const cuda::Context& context, Communicator on,
                           const std::vector<Operation>& operations, Stream stream) {
  int not_begun = kNotBegun;
  if (state.compare_exchange_strong(not_begun, kBegun)) {
    try {
      status = nccl::CallAll(library, context, on, operations, stream, [this] {
        int begun = kBegun;
        return state.compare_exchange_strong(begun, kInNccl);
      });
    } catch (const std::bad_alloc&) {
      status = OutOfMemory();
    }
  }
  state.store(kEnded, std::memory_order_release);
}

Result<int> Member::ScaledSum(DType dtype, double factor) {
  const std::pair<DType, uint64_t> key(dtype, std::bit_cast<uint64_t>(factor));
  if (sums_.size() >= kMostSums && !sums_.contains(key)) {
    for (const auto& [unused, op] : std::exchange(sums_, {})) library_->DestroyScaledSum(op, communicator_);
  }
  const auto [found, added] = sums_.try_emplace(key, 0);
  if (!added) return found->second;
  const Scalar scalar = ScalarOf(dtype, factor);
  Status made = library_->NewScaledSum(&found->second, &scalar, *TypeOf(dtype), communicator_);
  if (made.ok()) return found->second;
  sums_.erase(found);
  return made;
}

void Member::Leave(bool abort) {
  if (root_ == nullptr || std::exchange(left_, true)) return;
  const cuda::Current current(*context_);
  const auto leave = [&](Communicator one) { abort ? library_->Abort(one) : library_->Destroy(one); };
  // First what works on the device; but a root that is still making the other one is aborted first.
  if (!ready_) leave(root_);
  CallOff();
  if (communicator_ != nullptr) leave(communicator_);
  JoinThread();
  if (ready_) leave(root_);
}

// Before the communicator is freed: NCCL's abort reaches a thread that waits in ncclGroupEnd, not one that is on its
// way there.
void Member::CallOff() {
  int state = Away::kNotBegun;
  if (away_ == nullptr || away_->state.compare_exchange_strong(state, Away::kCalledOff)) return;
  const double deadline = MonotonicS() + kReturnS;
  while (away_->state == Away::kBegun && MonotonicS() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  state = Away::kBegun;
  if (away_->state.compare_exchange_strong(state, Away::kCalledOff)) return;  // it has not got on: it will find this
  if (state == Away::kInNccl) std::this_thread::sleep_for(kEnter);
}

void Member::JoinThread() {
  if (!thread_.joinable()) return;
  const double deadline = MonotonicS() + kReturnS;
  while (!away_->ended() && MonotonicS() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (away_->ended()) return thread_.join();
  Log(LogLevel::kWarning,
      library_->maker().name + std::string(": a call did not return; its thread and memory are leaked."));
  thread_.detach();
}

}  // namespace hvd::backend::nccl
