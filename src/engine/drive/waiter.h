// Waiter: how a thread of the user waits for a result. It takes the driver role and spins for a bounded time, then
// gives its core away between looks, then sleeps. Any thread.
#pragma once

#include "engine/drive/driver.h"
#include "engine/express/express.h"
#include "engine/record/counters.h"
#include "engine/wake/spread.h"

namespace hvd::engine {

class Waiter {
 public:
  // express, spread: null: there is none. spin_us: before a thread sleeps; < 0: as long as suits the cores.
  Waiter(Driver* driver, Express* express, Spread* spread, Counters* counters, double spin_us)
      : driver_(driver),
        tools_(driver->tools()),
        express_(express),
        spread_(spread),
        counters_(counters),
        spin_us_(spin_us) {}

  // True: done. False: the time is over, or a signal arrived.
  bool Wait(Completion& completion, double timeout_s);

 private:
  enum class Woken { kProgress, kTimeout, kSignal };
  Woken DriveFor(Completion& completion, double deadline);
  Woken SleepInRole(double deadline);

  Driver* const driver_;
  const Driver::Tools tools_;
  Express* const express_;
  Spread* const spread_;
  Counters* const counters_;
  const double spin_us_;
};

}  // namespace hvd::engine
