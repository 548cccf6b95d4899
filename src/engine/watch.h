// Watch: what this rank knows of the lives of the others: which processes are gone, who said goodbye, who is suspected.
//
// A process that is gone without its goodbye in the log is dead; the goodbye may still be on its way from another rank,
// so it is only a suspect for a moment. Who sleeps on the descriptors (any thread) notices that a process is gone; the
// rest is for the holder of the driver role.
#pragma once

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "engine/descriptors.h"
#include "engine/waker.h"

namespace hvd::engine {

class Watch {
 public:
  struct Death {
    int rank;
    Status why;
  };

  // Takes the liveness descriptors out of *given; `waker` wakes this rank for them.
  static Result<std::unique_ptr<Watch>> Open(const hvd_config& config, Descriptors* given, Waker* waker);

  // ---- any thread
  void NoticeGone(int rank);
  bool any_noticed() const { return any_noticed_.load(std::memory_order_seq_cst); }

  // ---- the holder of the role
  // What was noticed is suspected from now on.
  void TakeNoticed();
  // A suspect whose time is over, once each; those that said goodbye are no longer suspects. Empty: none.
  std::optional<Death> Judge(double now);
  double next_deadline() const { return suspects_ == 0 ? kNever : NextJudgement(); }  // infinity: nobody is suspected
  // Its goodbye is in the log. badly: with a reason.
  void Left(int rank, bool badly);
  bool has_left(int rank) const { return left_.contains(rank); }
  // Is its process there, as far as can be seen?
  bool Lives(int rank) const;

  // A rank that an exception has ended is the cause of what this rank suffers from. Launchers take the process that
  // ends first for the culprit: lets it, for so many seconds. When nobody drives any more.
  void AwaitCulprits(double seconds) const;
  void DetachInChild();

 private:
  struct Peer {
    int64_t pid = 0;
    Fd alive;                  // invalid: out of sight
    double suspected_at = 0;   // its process is gone; 0: not
    bool ended_badly = false;  // it said goodbye with a reason
  };

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit Watch(Waker* waker) : waker_(waker) {}
  double NextJudgement() const;

  Waker* const waker_;
  std::map<int, Peer> peers_;  // by rank; who they are and their descriptors are constant after Open
  int suspects_ = 0;           // peers with suspected_at set
  std::set<int> left_;         // ranks that said goodbye, also those out of sight
  std::mutex mutex_;           // guards noticed_
  std::vector<int> noticed_;   // ranks, for whoever has the role
  std::atomic<bool> any_noticed_{false};
};

}  // namespace hvd::engine
