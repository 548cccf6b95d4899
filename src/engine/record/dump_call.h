// DumpCall: what asks this process for a dump of its state, as a descriptor that somebody sleeps on. One for the whole
// process: signals know no engine.
#pragma once

#include "base/status.h"

namespace hvd::engine {

class DumpCall {
 public:
  // An eventfd, made by the first call; -1: there is no descriptor left. What is read from it counts calls: those by a
  // signal, and 2^32 for each by a stall.
  static int Descriptor();
  // An operation waits for ranks that have not submitted it. Does nothing when nobody listens.
  static void Stalled();
  // From now on this signal calls for a dump. kUnsupported: somebody else handles it, or has it ignored.
  static Status OnSignal(int number);
};

}  // namespace hvd::engine
