// Progress: everything that the holder of the driver role moves forward, without waiting: submissions go to the
// negotiation, control frames in and out, the log is obeyed, the running batch advances, deadlines are watched. Used by
// the holder of the role only.
#pragma once

#include <limits>
#include <vector>

#include "engine/drive/feed.h"
#include "engine/drive/orders.h"
#include "engine/drive/tracing.h"
#include "engine/wake/clock.h"

namespace hvd::engine {

class Progress {
 public:
  struct Tools {
    Feed* feed;
    Orders* orders;
    negotiation::Node* node;
    Executor* executor;
    backend::Registry* backends;
    Connections* connections;
    Watch* watch;
    Verdict* verdict;
    Arrivals* arrivals;
    const Stamp* stamp;
    Tracing* tracing;
  };
  Progress(const Tools& tools, double collective_timeout_s)
      : tools_(tools), collective_timeout_s_(collective_timeout_s) {}

  // One round of everything. True: something moved.
  bool Step();
  // The part that makes news known to others, for a thread that does not wait for its result.
  void Announce();
  // Has a process died, is a deadline over?
  void Look();
  // A driver that always finds something to do looks now and then.
  static constexpr uint64_t kRoundsPerLook = 4096;
  // Deadlines: the negotiation's own, the collective time-out, suspected deaths. True: one was due.
  bool CheckClock();
  double NextDeadline() const;
  // The running batch moves only while it is looked at (base/polled.h): at once, or after a pause.
  bool must_look_at_once() const { return tools_.executor->LookAgainInS() == 0; }
  bool must_look_again() const { return tools_.executor->LookAgainInS() < std::numeric_limits<double>::infinity(); }
  // Does the running batch, or what this rank has asked for, need more rounds?
  bool Busy() const {
    return tools_.feed->any_in_flight() || tools_.executor->size() > 0 || tools_.connections->links().HasUnsent();
  }
  bool AnythingSubmitted() const { return tools_.feed->any() || tools_.tracing->any(); }  // any thread
  // Has something come that Step would take? Any thread.
  bool AnythingReady() const {
    return AnythingSubmitted() || tools_.connections->links().AnythingToRead() || tools_.connections->openings().any();
  }

  // A thread waits for a result: the root need not linger.
  void set_someone_waits(bool waits) { someone_waits_ = waits; }
  // Without memory for the work the engine fails: what is half done cannot be repeated.
  void RanOutOfMemory() noexcept;
  // Any thread. Done when this rank's goodbye is in the log, and everything before it is done and said.
  Completion& goodbye() { return goodbye_; }

 private:
  bool ReadLinks();
  void LinkBroken(const Status& why);
  bool Advance();
  bool Decide();
  bool SendOutgoing();
  void CheckMovement(double now);
  void CheckTrack(backend::Track track, double now, double* last_movement_s);
  void CheckDevices(double now);
  void SayGoodbye();
  void CheckPeers(double now);
  bool may_wait_for_other_hosts() const {
    return !tools_.connections->one_host() && (tools_.executor->running() || tools_.feed->any_in_flight());
  }
  bool HostHasMoved();
  double PatienceWith(backend::Track track) const;
  double MustHaveMovedBy(backend::Track track, double last_movement_s) const;
  double NextDeviceCheck() const;
  Status TimedOut(backend::Track track) const;

  const Tools tools_;
  const double collective_timeout_s_;
  Completion goodbye_{1};
  std::vector<negotiation::Action> obeying_;
  bool someone_waits_ = false;
  // Of the running batch on each track; 0: not measured yet.
  double last_movement_s_ = 0, last_device_movement_s_ = 0;
  uint64_t moves_before_ = 0;  // of the ranks of this host, when last looked
  double next_check_s_ = 0;    // of the hosts that may be waited for
};

}  // namespace hvd::engine
