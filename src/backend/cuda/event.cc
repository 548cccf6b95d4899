#include "backend/cuda/event.h"

#include <sched.h>

namespace hvd::backend::cuda {
namespace {

constexpr unsigned kWithTiming = 0, kDisableTiming = 2;  // CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING

}  // namespace

Event::~Event() { pool_->TakeBack(handle_); }

Status Event::HoldBack(void* stream) const {
  const Context& context = pool_->context();
  return CallOn(context, stream, context.driver()->stream_wait_event, stream, handle_, 0);
}

Status Event::HoldBackProgram(void* stream) const {
  const CurrentFor current(pool_->context(), stream);
  HVD_TRY(RefuseCapture(pool_->context(), stream));
  return HoldBack(stream);
}

bool Event::Reached() const {
  bool reached = false;
  return Ask(&reached).ok() && reached;
}

Status Event::Ask(bool* reached) const {
  const Driver& driver = pool_->context().driver();
  const Relaxed relaxed(driver);
  const int code = driver->event_query(handle_);
  *reached = code == 0;
  return code == 0 || code == kNotReady ? Status() : driver.Failed(driver->event_query.name(), code);
}

Status Event::Wait() const {
  for (bool reached = false;;) {
    HVD_TRY(Ask(&reached));
    if (reached) return Status();
    sched_yield();
  }
}

Result<double> Event::SecondsUntil(const Event& later) const {
  const Driver& driver = pool_->context().driver();
  const Relaxed relaxed(driver);
  float ms = 0;
  HVD_TRY(driver.Call(driver->event_elapsed_time, &ms, handle_, later.handle_));
  return static_cast<double>(ms) * 1e-3;
}

EventPool::~EventPool() {
  for (const Handle event : spare_) (void)context_->driver()->event_destroy(event);
}

Result<std::shared_ptr<Event>> EventPool::Record(Handle stream) {
  const Result<Handle> handle = Take();
  HVD_TRY(handle.status());
  auto event = std::make_shared<Event>(shared_from_this(), *handle);
  HVD_TRY(CallOn(*context_, stream, context_->driver()->event_record, *handle, stream));
  return event;
}

Result<Handle> EventPool::Take() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!spare_.empty()) {
      const Handle event = spare_.back();
      spare_.pop_back();
      return event;
    }
    spare_.reserve(++made_);
  }
  const Current current(*context_);
  Handle made = nullptr;
  HVD_TRY(context_->driver().Call(context_->driver()->event_create, &made,
                                  timing_ == kTimed ? kWithTiming : kDisableTiming));
  return made;
}

void EventPool::TakeBack(Handle event) {
  std::lock_guard<std::mutex> lock(mutex_);
  spare_.push_back(event);
}

size_t EventPool::spare() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return spare_.size();
}

}  // namespace hvd::backend::cuda
