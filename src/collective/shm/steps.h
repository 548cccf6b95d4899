// What the shared-memory collectives (shm_*.cc) have in common: the step counter of a batch, first use of own buffers,
// when to yield, and the stream of pieces that allgather, alltoall and reducescatter are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/task.h"
#include "collective/batch.h"
#include "collective/kernels/kernels.h"
#include "collective/shm/ranges.h"
#include "collective/stores/trial.h"
#include "transport/local_view.h"

namespace hvd::collective::shm {

using transport::LocalView;

inline constexpr size_t kShareAlign = 64;  // shares begin on cache lines: no line is stored by two ranks
inline constexpr size_t RoundUpTo(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// One batch on one LocalView. Lives in the outermost coroutine's frame.
class Steps {
 public:
  Steps(const Group& group, uint64_t seq) : view_(*group.local), seq_(seq) { view_.Begin(seq); }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  LocalView& view() { return view_; }
  int n() const { return view_.size(); }
  int me() const { return view_.index(); }

  // Steps are numbered alike on all members: `taken` is the last one that every member passes before what comes next.
  uint32_t taken() const { return taken_; }
  void Take(uint32_t steps) { taken_ += steps; }

  // The small buffers alternate with the parity of seq, and within a batch. True: this batch has not used the buffer
  // yet; Acquire it.
  int small_buffer(uint32_t turn) const { return static_cast<int>((seq_ + turn) % LocalView::kSmallBuffers); }
  int NextSmallBuffer() { return small_buffer(small_turn_++); }
  bool FirstUse(LocalView::Buffer kind, int which) {
    const uint32_t bit = 1u << (kind == LocalView::Buffer::kSmall ? which : LocalView::kSmallBuffers + which);
    const bool first = (used_ & bit) == 0;
    used_ |= bit;
    return first;
  }

  // Counts bytes worked on; true when it is time to let the driver look after control traffic (about 100 us).
  bool Tired(size_t bytes) {
    worked_ += bytes;
    if (worked_ < kYieldBytes) return false;
    worked_ = 0;
    return true;
  }

 private:
  static constexpr size_t kYieldBytes = 1 << 20;
  LocalView& view_;
  const uint64_t seq_;
  uint32_t taken_ = 0, used_ = 0, small_turn_ = 0;
  size_t worked_ = 0;
};

// n pointers without an allocation for the usual numbers of ranks.
template <class P>
class PointerList {
 public:
  explicit PointerList(int n) {
    if (n > kInline) more_.resize(n);
  }
  P& operator[](int i) { return data()[i]; }
  P* data() { return more_.empty() ? few_ : more_.data(); }

 private:
  static constexpr int kInline = 16;
  P few_[kInline] = {};
  std::vector<P> more_;
};

inline size_t TotalOf(const std::vector<Ranges>& parts) {
  size_t total = 0;
  for (const Ranges& part : parts) total += part.total();
  return total;
}

// Inside a batch, any number of times: all[m * bytes] = what member m passed. 1 step per 64 KB.
Task ExchangeBlobs(Steps& steps, const std::byte* mine, size_t bytes, std::byte* all);

// The same for a header of equal size on all members, with the data of a member right behind it where both fit one
// small buffer. 1 step for the usual headers; the last one also announces what this rank has stored before.
Task ExchangeHeaders(Steps& steps, const std::byte* mine, size_t bytes, const Ranges& data, std::byte* all);
inline bool TravelsInline(size_t header_bytes, size_t data_bytes) {
  return header_bytes <= LocalView::small_bytes() / 2 && data_bytes <= LocalView::small_bytes() - header_bytes;
}
// Where ExchangeHeaders put the data of a member; it is the first exchange of a batch.
inline const std::byte* InlineData(Steps& steps, int member, size_t header_bytes) {
  return steps.view().small(member, steps.small_buffer(0)) + header_bytes;
}

inline Status TooManySteps() {
  return Status(Code::kUnsupported,
                "a batch of this size needs too many chunks over shared memory; split the tensor, or lower "
                "HOROVOD_FUSION_THRESHOLD.");
}

// The stages of a rank are one piece of memory (arena.h); streams cut it into four pieces.
inline constexpr int kPieces = 4;
static_assert(kPieces % LocalView::kStages == 0 && kPieces >= 4,
              "StreamPieces fills two pieces ahead of two being drained");
inline constexpr size_t kPieceBytes = LocalView::kStages * LocalView::stage_bytes() / kPieces;
inline std::byte* PieceOf(LocalView& view, int member, size_t c) {
  return view.stage(member, 0) + c % kPieces * kPieceBytes;
}

// Before this batch stores into its own stages for the first time.
Task AcquireStages(Steps& steps);

// `rounds` pieces from every member to every member. fill(c, piece) stores this rank's piece c; drain(c) consumes the
// pieces c of the others. Piece 0 has been filled, if this rank has one, before it published step taken(): it travels
// with whatever else that step announced. Steps from there: P(-2) = 0, P(-1) = 1 after piece 1 is filled, P(c) = c + 2
// after round c, which fills piece c + 2 and drains piece c. Invariant: round c begins when all members have passed
// P(c - 2). Then pieces c are filled (they were in round c - 2), and the pieces c - 2, whose memory piece c + 2 takes,
// are drained. A member may be one whole round ahead of another before it has to wait.
// When it returns, others may still drain the last pieces: a caller that streams again in the same batch awaits
// AllReached(steps.taken()) first.
template <class Fill, class Drain>
Task StreamAnnounced(Steps& steps, size_t rounds, size_t round_bytes, Fill fill, Drain drain) {
  if (rounds == 0) co_return Status();
  if (steps.taken() + rounds >= LocalView::kFinalStep / 2) co_return TooManySteps();
  LocalView& view = steps.view();
  const uint32_t base = steps.taken();
  if (rounds > 1) {
    fill(1, PieceOf(view, steps.me(), 1));
    view.Publish(base + 1);
  }
  for (size_t c = 0; c < rounds; ++c) {
    const uint32_t step = base + static_cast<uint32_t>(c);
    HVD_CO_TRY(co_await view.AllReached(step));
    if (c + 2 < rounds) fill(c + 2, PieceOf(view, steps.me(), c + 2));
    drain(c);
    view.Publish(step + 2);
    if (steps.Tired(round_bytes)) co_await Yield();
  }
  steps.Take(static_cast<uint32_t>(rounds + 1));
  co_return Status();
}

// The same where nothing was announced before: 1 step more.
template <class Fill, class Drain>
Task StreamPieces(Steps& steps, size_t rounds, size_t round_bytes, Fill fill, Drain drain) {
  if (rounds == 0) co_return Status();
  HVD_CO_TRY(co_await AcquireStages(steps));
  fill(0, PieceOf(steps.view(), steps.me(), 0));
  steps.Take(1);
  steps.view().Publish(steps.taken());
  co_return co_await StreamAnnounced(steps, rounds, round_bytes, std::move(fill), std::move(drain));
}

}  // namespace hvd::collective::shm
