// Openings: data connections that are made when they are first needed. A wish leaves through a socket, as the number of
// a rank; the opener of connections reads it there (horovod.h), and hands in what came of it. Of two ranks the higher
// one wishes, and the lower one waits for it to come.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "engine/wake/waker.h"
#include "transport/later_channel.h"

namespace hvd::engine {

class Openings {
 public:
  // wishes: a stream socket; invalid: every connection is there from the start.
  // silence_s: of another host that is believed.
  Openings(int rank, Fd wishes, double silence_s) : rank_(rank), wishes_(std::move(wishes)), silence_s_(silence_s) {}

  bool expected() const { return wishes_.valid(); }
  // A way to `peer` that is not open yet.
  std::unique_ptr<transport::Channel> Promise(int peer);

  // ---- any thread
  // The connection to a rank, which is closed if that does not wait for one; or why there is none.
  Status Deliver(int peer, Fd connection, const Status& why_not);
  bool any() const { return any_.load(std::memory_order_seq_cst); }

  // ---- the holder of the driver role
  // Puts what was delivered into its channels; `waker` wakes for it from now on. False: nothing was.
  bool Take(Waker* waker);
  // A connection to that rank is needed, and not there.
  bool lacks(int peer) const {
    const auto promised = promised_.find(peer);
    return promised != promised_.end() && !promised->second->open();
  }
  // In a forked child.
  void CloseInChild() { wishes_.Reset(); }

 private:
  struct Delivery {
    int peer;
    std::unique_ptr<transport::Channel> way;  // null: `status` says why
    Status status;
  };
  bool Tell(int peer) const;

  const int rank_;
  Fd wishes_;
  const double silence_s_;
  std::map<int, transport::LaterChannel*> promised_;  // constant once the engine runs
  std::mutex mutex_;                                  // guards delivered_
  std::vector<Delivery> delivered_;
  std::atomic<bool> any_{false};
};

}  // namespace hvd::engine
