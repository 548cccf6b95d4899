#include "engine/wake/waker.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/limits.h"

namespace hvd::engine {
namespace {

// How long an asynchronous submission may wait for the background thread to look at it.
constexpr double kLookAfterS = 100e-6;
// How long sockets may stay hushed after a thread has got what it waited for. To hush them and to hear them again in
// each small operation costs an eighth of it; the look costs less than a hundredth of what passes until then.
constexpr double kLookLaterS = 400e-6;

Status Made(const char* what, Fd* out, int fd) {
  out->Reset(fd);
  return out->valid() ? Status() : SystemFailure(std::string("cannot make ") + what, errno);
}

void AddOne(int event_fd) {
  const uint64_t one = 1;
  while (write(event_fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

// False: another thread has drained it.
bool Drained(int fd) {
  uint64_t count;
  return read(fd, &count, sizeof count) >= 0;
}

}  // namespace

Result<std::unique_ptr<Waker>> Waker::Open(int rank, int doorbell, transport::Neighbours* neighbours) {
  std::unique_ptr<Waker> waker(new Waker(doorbell, neighbours));
  HVD_TRY(waker->Make(rank));
  return waker;
}

Status Waker::Make(int rank) {
  for (Sleeper* sleeper : {&background_, &waiting_}) {
    HVD_TRY(sleeper->Open());
    HVD_TRY(sleeper->Watch(doorbell_, Sleeper::Kind::kDoorbell, rank));
  }
  socket_news_.reserve(Sleeper::kMostEvents);  // Hear has nobody to tell that memory has run out
  HVD_TRY(by_socket_.Open());
  HVD_TRY(background_.Nest(by_socket_));
  HVD_TRY(Made("a timer", &timer_, timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)));
  HVD_TRY(background_.Watch(timer_.get(), Sleeper::Kind::kTimer, rank));
  HVD_TRY(Made("a doorbell for waiting threads", &nudge_, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  return waiting_.Watch(nudge_.get(), Sleeper::Kind::kNudge, rank);
}

Status Waker::WatchSocket(int fd, int rank) {
  if (!sockets_) sockets_ = true;  // once others may look, it stands
  HVD_TRY(by_socket_.Watch(fd, Sleeper::Kind::kSocket, rank));
  return waiting_.Watch(fd, Sleeper::Kind::kSocket, rank);
}

Status Waker::WatchProcess(int fd, int rank) {
  HVD_TRY(background_.Watch(fd, Sleeper::Kind::kLiveness, rank));
  return waiting_.Watch(fd, Sleeper::Kind::kLiveness, rank);
}

void Waker::ForgetProcess(int fd) {
  background_.Forget(fd);
  waiting_.Forget(fd);
}

void Waker::RingSelf() {
  if (neighbours_ != nullptr) return neighbours_->RingSelf();
  constexpr auto kAwake = static_cast<uint32_t>(transport::BellState::kAwake);
  if (own_bell_.exchange(kAwake, std::memory_order_seq_cst) != kAwake) AddOne(doorbell_);
}

void Waker::RingBackground() { AddOne(doorbell_); }

void Waker::NudgeDriver() {
  if (!sockets_) return RingSelf();  // it sleeps on the bell
  AddOne(nudge_.get());
}

void Waker::LookSoon() {
  if (look_.exchange(Look::kSoon, std::memory_order_seq_cst) != Look::kSoon) ArmTimer(kLookAfterS);
}

void Waker::LookLater() {
  Look none = Look::kNone;
  if (look_.compare_exchange_strong(none, Look::kLater, std::memory_order_seq_cst)) ArmTimer(kLookLaterS);
}

void Waker::ArmTimer(double after_s) {
  itimerspec when = {};
  when.it_value.tv_nsec = static_cast<long>(after_s * 1e9);
  timerfd_settime(timer_.get(), 0, &when, nullptr);
}

bool Waker::Sleep(double timeout_s, Events* events) {
  return sleeps_on_bell() ? neighbours_->SleepOnBell(timeout_s) : waiting_.Wait(timeout_s, events);
}

void Waker::Hush() {
  if (!sockets_ || hushed_) return;
  hushed_ = true;
  background_.Silence(by_socket_, true);
}

bool Waker::Hear() {
  if (!hushed_) return false;
  hushed_ = false;
  // First this: what comes from now on wakes the background thread.
  const bool news = TakeSocketNews();
  background_.Silence(by_socket_, false);
  return news;
}

bool Waker::TakeSocketNews() {
  if (!sockets_) return false;
  bool any = false;
  do {
    by_socket_.Wait(0, &socket_news_);
    any |= !socket_news_.empty();
  } while (static_cast<int>(socket_news_.size()) == Sleeper::kMostEvents);
  return any;
}

bool Waker::IsNews(const Events& events) const {
  const bool later = look_.load(std::memory_order_seq_cst) == Look::kLater;
  return std::any_of(events.begin(), events.end(),
                     [later](const Sleeper::Event& e) { return !later || e.kind != Sleeper::Kind::kTimer; });
}

void Waker::Drain(const Sleeper::Event& event) {
  if (event.kind == Sleeper::Kind::kDoorbell) (void)Drained(doorbell_);
  if (event.kind == Sleeper::Kind::kNudge) (void)Drained(nudge_.get());
  if (event.kind == Sleeper::Kind::kTimer && Drained(timer_.get())) look_.store(Look::kNone, std::memory_order_seq_cst);
}

}  // namespace hvd::engine
