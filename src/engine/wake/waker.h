// Waker: what the threads of this rank sleep on, and what wakes them: the bell and the doorbell that the neighbours
// ring, the sockets and the processes of the other ranks, a timer, a nudge (docs/design/0002-driver-role-and-bells.md).
//
// Bells (neighbours.h): kAwake while somebody drives; a driver that is about to sleep or leave stores kBlocked
// (something is pending) or kIdle, then looks at its inputs once more, so that no ring is lost. Any thread may call
// anything here; SetBell and Sleep are for the holder of the driver role, SleepInBackground for the background thread.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/wake/sleeper.h"
#include "transport/neighbours.h"

namespace hvd::engine {

class Waker {
 public:
  using Events = std::vector<Sleeper::Event>;

  // doorbell: of this rank, owned by its connections. neighbours: null if there are none.
  static Result<std::unique_ptr<Waker>> Open(int rank, int doorbell, transport::Neighbours* neighbours);
  // Both threads that sleep on descriptors wake for it. Before either sleeps; later with the role, if it was expected.
  Status WatchSocket(int fd, int rank);
  // Sockets will come while others work.
  void ExpectSockets() { sockets_ = true; }
  Status WatchProcess(int fd, int rank);
  // A process that is gone stays gone: its descriptor is watched no longer.
  void ForgetProcess(int fd);

  void SetBell(transport::BellState state) {
    if (neighbours_ != nullptr) return neighbours_->SetBell(state);
    own_bell_.store(static_cast<uint32_t>(state), std::memory_order_seq_cst);
  }
  // Wakes the driver, or the background thread.
  void RingSelf();
  // Wakes the background thread, whatever the bell says.
  void RingBackground();
  // For the background thread, which has taken news off a descriptor that a waiting thread may be about to sleep on.
  void NudgeDriver();
  // Has the background thread look at everything in a moment, unless it is going to already. Used instead of ringing at
  // once by threads that are probably back before then.
  void LookSoon();
  // The same a little later.
  void LookLater();

  // Does a waiting thread watch sockets too? If not, it sleeps on the bell.
  bool watches_sockets() const { return sockets_; }
  // Says in the bell that the holder of the role is about to sleep; its last look comes between this and Sleep.
  void AnnounceSleep() { SetBell(sleeps_on_bell() ? transport::BellState::kWaiting : transport::BellState::kBlocked); }
  // For timeout_s (infinity allowed), or until something comes: *events. False: interrupted by a signal.
  bool Sleep(double timeout_s, Events* events);
  void SleepInBackground(double timeout_s, Events* events) { background_.Wait(timeout_s, events); }
  // Whether a thread that drives has to know of these, which are not drained yet. It looks at everything anyway when it
  // leaves, so the timer of LookLater is nothing new.
  bool IsNews(const Events& events) const;
  // Takes an event off its descriptor, if it is one of this rank's own.
  void Drain(const Sleeper::Event& event);

  // ---- the holder of the role. What comes over sockets wakes the background thread, unless it is hushed: a waiting
  // thread that drives sees all of it, and to wake another thread for each message costs more than the message.
  void Hush();
  // The end of that. True: something has come that this thread may not have read yet.
  bool Hear();
  bool hushed() const { return hushed_; }
  // Forgets what has come over the sockets so far. For who reads all of them afterwards.
  bool TakeSocketNews();

 private:
  Waker(int doorbell, transport::Neighbours* neighbours) : doorbell_(doorbell), neighbours_(neighbours) {}
  Status Make(int rank);
  enum class Look { kNone, kLater, kSoon };
  void ArmTimer(double after_s);
  bool sleeps_on_bell() const { return neighbours_ != nullptr && !sockets_; }

  const int doorbell_;
  transport::Neighbours* const neighbours_;
  std::atomic<uint32_t> own_bell_{0};  // when there are no neighbours
  Fd timer_;
  std::atomic<Look> look_{Look::kNone};  // for what the timer runs
  Fd nudge_;                             // wakes a waiting thread that sleeps on descriptors, and nobody else
  bool sockets_ = false;
  bool hushed_ = false;           // the holder of the role has silenced the sockets
  Sleeper background_, waiting_;  // what the background thread sleeps on, and a waiting one
  Sleeper by_socket_;             // in the background thread's
  Events socket_news_;
};

}  // namespace hvd::engine
