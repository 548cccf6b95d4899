// Watch: what this rank knows of the lives of the others: which processes are gone, who said goodbye, who is suspected.
//
// A process that is gone is dead, and that is believed at once, unless it ended in order: then it has said so where its
// neighbours see it, before its end, and its goodbye is in the log. One that gave up before has said why, which is
// given a moment to arrive. The sleeper on the descriptors (any thread) notices that a process is gone; the rest is for
// the holder of the driver role.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/links/descriptors.h"
#include "engine/wake/waker.h"

namespace hvd::engine {

class Watch {
 public:
  struct Death {
    int rank;
    Status why;
  };

  using LastWordOf = std::function<transport::LastWord(int rank)>;

  // Takes the liveness descriptors out of *given; `waker` wakes this rank for them.
  static Result<std::unique_ptr<Watch>> Open(const hvd_config& config, Descriptors* given, Waker* waker,
                                             LastWordOf last_word);

  // ---- any thread
  void NoticeGone(int rank);
  bool any_noticed() const { return any_noticed_.load(std::memory_order_seq_cst); }

  // ---- the holder of the role
  // What was noticed is suspected from now on. False: nothing was. Otherwise the holder reads what has come from others
  // before it judges: it may say more.
  bool TakeNoticed();
  // A suspect that is dead, once each; those that said goodbye are no longer suspects. Empty: none.
  std::optional<Death> Judge(double now);
  double next_deadline() const { return suspects_ == 0 ? kNever : NextJudgement(); }  // infinity: nobody is suspected
  // Its goodbye is in the log. badly: with a reason.
  void Left(int rank, bool badly);
  bool has_left(int rank) const { return left_.contains(rank); }
  // Is its process there, as far as can be seen?
  bool Lives(int rank) const;

  // Launchers take the process that ends first for the culprit. If another rank has been ended by an exception, and so
  // caused what this one suffers from, waits for that process to end, for so many seconds at most. Nobody may be
  // driving any more.
  void AwaitCulprits(double seconds) const;
  void DetachInChild();

 private:
  struct Peer {
    int64_t pid = 0;
    Fd alive;                  // invalid: out of sight
    double judged_at = 0;      // its process is gone: when to judge it; 0: it is there, or was judged
    bool ended_badly = false;  // it said goodbye with a reason
  };

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  Watch(Waker* waker, LastWordOf last_word) : waker_(waker), last_word_(std::move(last_word)) {}
  double NextJudgement() const;

  Waker* const waker_;
  const LastWordOf last_word_;
  std::map<int, Peer> peers_;  // by rank; who they are and their descriptors are constant after Open
  int suspects_ = 0;           // peers with judged_at set
  std::set<int> left_;         // ranks that said goodbye, also those out of sight
  std::mutex mutex_;           // guards noticed_
  std::vector<int> noticed_;   // ranks, for the holder of the role
  std::atomic<bool> any_noticed_{false};
};

}  // namespace hvd::engine
