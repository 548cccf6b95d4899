// Moments in what streams do. Events are made once and used again and again: recording one takes half a microsecond,
// making one three times that and a current context.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/cuda/driver/context.h"
#include "base/device.h"

namespace hvd::backend::cuda {

class EventPool;

class Event final : public DeviceEvent {
 public:
  Event(std::shared_ptr<EventPool> pool, Handle handle) : pool_(std::move(pool)), handle_(handle) {}
  // A stream that waits for it on the device goes on waiting for this moment: the driver notes what to wait for when
  // the wait is put on the stream.
  ~Event() override;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Status HoldBack(void* stream) const override;
  Status HoldBackProgram(void* stream) const override;
  // Not if the device has failed: see Ask.
  bool Reached() const override;
  // The same, with the device's failure if there is one.
  Status Ask(bool* reached) const;
  // Until it has come. Spins: the thread is on the processor meanwhile.
  Status Wait() const;
  // From this one to another of its pool, which is timed; both have come.
  Result<double> SecondsUntil(const Event& later) const;

 private:
  const std::shared_ptr<EventPool> pool_;
  const Handle handle_;
};

class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  // Timed ones know when they came, and cost their streams a microsecond more (docs/gpu.md).
  enum Timing { kNotTimed, kTimed };

  explicit EventPool(std::shared_ptr<const Context> context, Timing timing = kNotTimed)
      : context_(std::move(context)), timing_(timing) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  const Context& context() const { return *context_; }
  // The moment when what has been put on `stream` until now is done. The stream must not be captured.
  Result<std::shared_ptr<Event>> Record(Handle stream);
  // How many wait to be used again.
  size_t spare() const;

 private:
  friend class Event;
  Result<Handle> Take();
  void TakeBack(Handle event);

  const std::shared_ptr<const Context> context_;
  const Timing timing_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Handle> spare_;
  size_t made_ = 0;  // as many fit into spare_: giving back needs no memory
};

}  // namespace hvd::backend::cuda
