// Background: the engine's own thread. Drives while there is work that nobody waits for, and keeps watch over the
// descriptors; sleeps otherwise, so an idle job costs nothing.
#pragma once

#include <atomic>
#include <thread>

#include "engine/drive/driver.h"

namespace hvd::engine {

class Background {
 public:
  explicit Background(Driver* driver) : driver_(driver), tools_(driver->tools()) {}

  // affinity: the core that the thread is bound to; < 0: none.
  Status Start(int affinity);
  void Stop();
  bool running() const { return thread_.joinable(); }

 private:
  void Loop();
  bool Drive();
  double DriveInRole(bool* idle);

  Driver* const driver_;
  const Driver::Tools tools_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hvd::engine
