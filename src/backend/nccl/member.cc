#include "backend/nccl/member.h"

#include <bit>
#include <cstdint>

#include "base/half.h"
#include "base/polled.h"

namespace hvd::backend::nccl {
namespace {

constexpr double kLivelyS = 0.001;  // most calls have ended when they return, the first one takes half a second

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

}  // namespace

Result<std::shared_ptr<Member>> Member::Begin(std::shared_ptr<Library> library,
                                              std::shared_ptr<const cuda::Context> context, const Place& place) {
  std::shared_ptr<Member> member(new Member(std::move(library), std::move(context), place));
  Config config;
  if (place.max_ctas > 0) config.max_ctas = place.max_ctas;
  const cuda::Current current(*member->context_);
  HVD_TRY(member->library_->Begin(&member->communicator_, place.size, place.id, place.index, config));
  return member;
}

Member::~Member() { Leave(/*abort=*/true); }

Task Member::Settled(const char* function) const {
  int state = kSuccess;
  co_await Polled([&] { return (state = library_->State(communicator_)) != kInProgress; }, kLivelyS);
  co_return state == kSuccess ? Status() : library_->Failed(function, state, communicator_);
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
  if (communicator_ == nullptr || std::exchange(left_, true)) return;
  const cuda::Current current(*context_);
  if (abort) {
    library_->Abort(communicator_);
  } else {
    library_->Destroy(communicator_);
  }
}

}  // namespace hvd::backend::nccl
