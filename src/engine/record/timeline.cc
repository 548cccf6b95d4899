#include "engine/record/timeline.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/monotonic.h"
#include "base/thread.h"
#include "engine/record/rank_form.h"
#include "engine/record/tensor_form.h"

namespace hvd::engine {
namespace {

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr double kNoTime = std::numeric_limits<double>::infinity();
constexpr double kAskEveryS = 0.05;  // a device that works
constexpr double kLastWaitS = 0.5;
constexpr double kGatherS = 0.02;  // a writer that has been woken lets more come: each time costs a core a switch
constexpr double kSendEveryS = 0.1;
// Rank 0 asks for the clocks of other hosts often at first, so that what waits for them does not wait long.
constexpr int kFirstRounds = 8;
constexpr double kFirstRoundsS = 0.01, kLaterRoundsS = 1;
constexpr double kAwaitClockS = 5;                    // then the trace goes on without
constexpr size_t kMostEvents = 1 << 18;               // that wait for the writer
constexpr size_t kMostPieceBytes = size_t{64} << 20;  // likewise, of other ranks

std::chrono::duration<double> Seconds(double s) { return std::chrono::duration<double>(std::clamp(s, 0.0, 1e6)); }

}  // namespace

void Timeline::Prepare(const Plan& plan) {
  plan_ = plan;
  const int64_t now_us = NowUs();
  const bool writes = !plan.path.empty();
  base_us_ = writes ? file_.start_us() : plan.base_us;
  text_.clear();
  if (plan.all_ranks) {
    form_ = std::make_unique<RankForm>(RankForm::Of{plan.rank, plan.host, plan.epoch, base_us_, now_us}, &text_);
  } else {
    form_ = std::make_unique<TensorForm>(plan.rank, base_us_);
  }
  clock_known_ = writes || !plan.other_hosts;
  if (clock_known_) form_->SetClock(0, 0, &text_);
  devices_ = std::make_unique<DeviceRows>(static_cast<double>(now_us) * 1e-6);
  ask_devices_at_ = 0;
  send_at_ = MonotonicS() + kSendEveryS;
  clock_due_by_ = MonotonicS() + kAwaitClockS;
  ask_clocks_at_ = writes && plan.all_ranks && plan.other_hosts ? MonotonicS() : kNoTime;
  clock_rounds_ = 0;
  if (!writes) pieces_.Begin(plan.rank, plan.number);
}

Status Timeline::Start(const Plan& plan) {
  std::lock_guard<std::mutex> life(life_);
  if (writer_.joinable() && active())
    return Status(Code::kInvalidArgument, "a timeline is being written already; call stop_timeline() first.");
  if (writer_.joinable()) writer_.join();  // it has been stopped
  if (!plan.path.empty()) {
    const TraceFile::Plan file{plan.path, plan.all_ranks ? "" : "horovod", plan.most_bytes, plan.continues, plan.job};
    HVD_TRY(file_.Open(file));
  }
  Prepare(plan);
  SetStop(false);
  Result<std::thread> writer = StartThread("the timeline's thread", [this] { WriterLoop(); });
  if (!writer.ok()) {
    SetStop(true);
    file_.Close();
    return writer.status();
  }
  writer_ = std::move(*writer);
  mark_cycles_ = plan.mark_cycles;
  active_ = true;
  return Status();
}

void Timeline::BeginStop() {
  active_ = false;
  SetStop(true);
  wake_.notify_one();
}

Status Timeline::Stop() {
  std::lock_guard<std::mutex> life(life_);
  if (!writer_.joinable()) return Status();
  BeginStop();
  writer_.join();
  if (!file_.is_open()) return Status();
  file_.Close();
  return file_.complete() ? Status() : Status(Code::kInternal, "the timeline '" + file_.path() + "' is incomplete.");
}

void Timeline::SetStop(bool stop) {
  std::lock_guard<std::mutex> lock(mutex_);
  stop_ = stop;
  if (stop) return;
  work_ = {};
  piece_bytes_ = 0;
}

void Timeline::Submitted(const std::string& name, int32_t process_set, const char* operation) {
  if (!active()) return;
  Push({.kind = TraceEvent::Kind::kSubmitted,
        .at_us = NowUs(),
        .name = RowOf(name, process_set),
        .operation = operation});
}
void Timeline::Failed(const std::string& name, int32_t process_set) {
  if (active()) Push({.kind = TraceEvent::Kind::kFailed, .at_us = NowUs(), .name = RowOf(name, process_set)});
}
void Timeline::Agreed(const AgreedRequests& tensors) {
  if (active()) Push({.kind = TraceEvent::Kind::kAgreed, .at_us = NowUs(), .tensors = tensors});
}
void Timeline::Began(TraceEvent event) {
  event.at_us = NowUs();
  if (active()) Push(std::move(event));
}
void Timeline::Ended(const AgreedRequests& tensors, uint64_t seq, int64_t bytes) {
  if (!active()) return;
  Push({.kind = TraceEvent::Kind::kEnded, .at_us = NowUs(), .tensors = tensors, .seq = seq, .bytes = bytes});
}
void Timeline::Instant(const char* what) {
  if (active()) Push({.kind = TraceEvent::Kind::kMoment, .at_us = NowUs(), .name = what});
}

void Timeline::Push(TraceEvent event) {
  bool wake;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return;  // it ended meanwhile
    if (work_.events.size() >= kMostEvents) {
      ++work_.dropped[plan_.rank];
      return;
    }
    work_.events.push_back(std::move(event));
    wake = std::exchange(idle_, false);
  }
  if (wake) wake_.notify_one();
}

void Timeline::Follow(Followed batch) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!stop_) work_.followed.push_back(std::move(batch));  // with an event, which wakes the writer
}

void Timeline::Write(negotiation::TracePiece piece) {
  bool wake;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return;
    if (piece_bytes_ + piece.text.size() > kMostPieceBytes) {
      work_.dropped[piece.rank] += piece.events;
      return;
    }
    piece_bytes_ += piece.text.size();
    work_.pieces.push_back(std::move(piece));
    wake = std::exchange(idle_, false);
  }
  if (wake) wake_.notify_one();
}

void Timeline::SetClock(double offset_s, double error_s) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return;
    work_.clock = {offset_s, error_s};
    idle_ = false;
  }
  wake_.notify_one();
}

double Timeline::NextLook() const {
  double at = ask_clocks_at_;
  if (!devices_->empty()) at = std::min(at, ask_devices_at_);
  if (!clock_known_) at = std::min(at, clock_due_by_);
  if (plan_.path.empty() && (text_.n_events > 0 || !text_.names.empty() || !pieces_.empty()))
    at = std::min(at, send_at_);
  return plan_.all_ranks ? std::min(at, MonotonicS() + 1) : at;  // for what lasts long
}

// Until there is something to write, or to look at. True: for the last time.
bool Timeline::AwaitWork(Work* work) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto stopped = [this] { return stop_; };
  if (work_.events.empty() && work_.pieces.empty() && !stop_) {
    idle_ = true;
    const auto woken = [this] { return stop_ || !idle_; };
    const double at = NextLook();
    if (at == kNoTime) {
      wake_.wait(lock, woken);
    } else {
      wake_.wait_for(lock, Seconds(at - MonotonicS()), woken);
    }
    idle_ = false;
  }
  if (!work_.events.empty() || !work_.pieces.empty()) wake_.wait_for(lock, Seconds(kGatherS), stopped);
  if (!clock_known_ && !work_.clock && !stop_ && MonotonicS() < clock_due_by_) {
    const double left = std::min(clock_due_by_ - MonotonicS(), kGatherS);
    wake_.wait_for(lock, Seconds(left), stopped);  // nothing is written before
    return stop_;
  }
  *work = std::exchange(work_, {});
  piece_bytes_ = 0;
  return stop_;
}

void Timeline::WriterLoop() {
  for (bool last = false; !last;) {
    Work work;
    last = AwaitWork(&work);
    if (last) {
      std::lock_guard<std::mutex> lock(mutex_);
      for (TraceEvent& e : work_.events) work.events.push_back(std::move(e));  // that waited for the clock
      work_ = {};
    }
    Render(&work, last, &text_);
    Deliver(work, &text_, last);
  }
}

void Timeline::Render(Work* work, bool last, TraceText* out) {
  if (work->clock) {
    const auto [offset_s, error_s] = *work->clock;
    form_->SetClock(static_cast<int64_t>(offset_s * 1e6), static_cast<int64_t>(error_s * 1e6 + 1), out);
    clock_known_ = true;
  } else if (!clock_known_ && (last || MonotonicS() >= clock_due_by_)) {
    form_->SetClock(0, -1, out);
    clock_known_ = true;
  }
  for (const TraceEvent& e : work->events) form_->Render(e, out);
  for (Followed& batch : work->followed) devices_->Add(std::move(batch));
  if (last) {
    RenderLast(out);
  } else if (!devices_->empty() && MonotonicS() >= ask_devices_at_) {
    RenderEnded(out);
    ask_devices_at_ = MonotonicS() + kAskEveryS;
  }
  const int64_t now_us = NowUs();
  if (clock_known_) form_->Look(now_us, last, out);
  for (const auto& [rank, n] : pieces_.TakeDropped()) work->dropped[rank] += n;
  for (const auto& [rank, n] : work->dropped) form_->Lack(rank, n, now_us, out);
}

void Timeline::RenderEnded(TraceText* out) {
  for (const DeviceRows::Shown& shown : devices_->TakeEnded()) form_->Render(shown, out);
}

// What they will have ended soon, too.
void Timeline::RenderLast(TraceText* out) {
  const double until = MonotonicS() + kLastWaitS;
  for (RenderEnded(out); !devices_->empty() && MonotonicS() < until; RenderEnded(out))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  devices_ = std::make_unique<DeviceRows>();
}

void Timeline::Deliver(const Work& work, TraceText* text, bool last) {
  const double now = MonotonicS();
  if (!plan_.path.empty()) {
    for (const negotiation::TracePiece& piece : work.pieces) {
      const bool names = piece.kind == negotiation::TracePiece::Kind::kNames;
      (names ? text->names : text->events) += piece.text;
    }
    file_.Append(text->names, text->events);
    text->clear();
    if (now < ask_clocks_at_) return;
    ask_clocks_at_ = now + (++clock_rounds_ < kFirstRounds ? kFirstRoundsS : kLaterRoundsS);
    return Ring();
  }
  const bool much = text->events.size() + text->names.size() >= TracePieces::kPieceBytes;
  if (!last && !much && now < send_at_) return;
  pieces_.Add(*text);
  text->clear();
  if (last) pieces_.End();
  send_at_ = now + kSendEveryS;
  if (!pieces_.empty()) Ring();
}

void Timeline::Ring() {
  due_.store(true, std::memory_order_release);
  if (ring_) ring_();
}

}  // namespace hvd::engine
