// Silence: whether the host at the other end of a connection is gone, judged from what the kernel tells of it now and
// then. Pure. Used by TcpChannel.
//
// A process that is stopped does not read, but its kernel still answers whatever is sent to it, even if only that there
// is no room. A cut link answers nothing. So what counts is not how long nothing has been taken, but how long nothing
// at all has come back since something was sent, and sent again.
#pragma once

#include <limits>

namespace hvd::transport {

class Silence {
 public:
  // Of one connection, at one moment. Seconds ago:
  struct Facts {
    bool owed = false;       // the other host has something to answer: bytes, or the question whether it has room
    double since_sent = 0;   // bytes were sent, for the first time or again
    double since_heard = 0;  // anything came
    unsigned questions = 0;  // for room, without an answer yet
  };

  // To be asked at least twice a second while it matters. True: the other host has been asked twice or more, for at
  // least this long, and has answered nothing since. now: in seconds, of any clock.
  bool Judge(const Facts& facts, double now, double patience_s);

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  double asked_at_ = -kNever;  // the first time that was not answered; -kNever: there is none
  double again_at_ = kNever;   // when it was seen that this was not the only one
  double sent_at_ = 0;         // when last looked
  unsigned questions_ = 0;     // when last looked
};

}  // namespace hvd::transport
