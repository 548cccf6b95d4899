#include "backend/nccl/member.h"

#include <bit>
#include <chrono>
#include <cstdint>

#include "base/half.h"
#include "base/monotonic.h"
#include "base/polled.h"
#include "base/thread.h"

namespace hvd::backend::nccl {
namespace {

constexpr double kLivelyS = 0.001;  // most calls have ended when they return, the first one takes half a second
// After an abort a call that waits for other members returns at once.
constexpr double kReturnS = 5;
// A call that has begun is inside NCCL after so long, where an abort reaches it.
constexpr std::chrono::milliseconds kEnter{50};

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

// Begin together. The group is closed whatever comes of them: it belongs to the thread.
Status CallAll(const Library& library, const cuda::Context& context, Communicator on,
               const std::vector<Operation>& operations, Stream stream) {
  const cuda::Current current(context);
  HVD_TRY(library.StartGroup());
  Status made;
  for (size_t i = 0; i < operations.size() && made.ok(); ++i) made = library.Put(operations[i], on, stream);
  const Status ended = library.EndGroup(on);
  return made.ok() ? ended : made;
}

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
  if (TakeNewWay(operations)) {
    HVD_CO_TRY(co_await PutFromThread(std::move(operations), stream));
  } else {
    HVD_CO_TRY(CallAll(*library_, *context_, communicator_, operations, stream));
  }
  co_return co_await Settled(function, communicator_);
}

// NCCL chooses its way by the operation and its size (rings, trees, NVLink SHARP), and between two members there is one
// for sends. Whether one of these has not been taken yet.
bool Member::TakeNewWay(const std::vector<Operation>& operations) {
  bool news = false;
  for (const Operation& o : operations) {
    const bool to_one = o.kind == Operation::kSend || o.kind == Operation::kReceive;
    news |= ways_.emplace(o.kind, to_one ? o.peer : static_cast<int>(std::bit_width(o.count))).second;
  }
  return news;
}

Task Member::PutFromThread(std::vector<Operation> operations, Stream stream) {
  if (thread_.joinable()) thread_.join();  // its calls have ended
  away_ = std::make_shared<Away>();
  Result<std::thread> thread = StartThread(
      "the thread that connects NCCL", [library = library_, context = context_, communicator = communicator_,
                                        operations = std::move(operations), stream, away = away_] {
        int not_begun = Away::kNotBegun;
        if (away->state.compare_exchange_strong(not_begun, Away::kBegun))
          away->status = CallAll(*library, *context, communicator, operations, stream);
        away->state.store(Away::kEnded, std::memory_order_release);
      });
  HVD_CO_TRY(thread.status());
  thread_ = std::move(*thread);
  co_await Polled([&] { return away_->ended(); }, kLivelyS);
  co_return away_->status;
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
  CallOff();
  // First what works on the device; but a root that is still making the other one is aborted first.
  if (!ready_) leave(root_);
  if (communicator_ != nullptr) leave(communicator_);
  JoinThread();
  if (ready_) leave(root_);
}

// NCCL's abort reaches a thread that waits in a call, not one that is about to make it.
void Member::CallOff() {
  if (away_ == nullptr) return;
  int not_begun = Away::kNotBegun;
  if (!away_->state.compare_exchange_strong(not_begun, Away::kCalledOff) && !away_->ended())
    std::this_thread::sleep_for(kEnter);
}

void Member::JoinThread() {
  if (!thread_.joinable()) return;
  const double deadline = MonotonicS() + kReturnS;
  while (!away_->ended() && MonotonicS() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  away_->ended() ? thread_.join() : thread_.detach();
}

}  // namespace hvd::backend::nccl
