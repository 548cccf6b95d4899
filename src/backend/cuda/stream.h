// Stream: a queue of work of our own. It does not wait for the default stream, and has the highest priority: what it
// does, other ranks wait for.
#pragma once

#include <memory>
#include <utility>

#include "backend/cuda/event.h"

namespace hvd::backend::cuda {

class Stream {
 public:
  static Result<std::unique_ptr<Stream>> Make(std::shared_ptr<EventPool> events);
  // What has been put on it is done all the same.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Handle handle() const { return handle_; }
  // The moment when what has been put on it until now is done.
  Result<std::shared_ptr<Event>> Record() const { return events_->Record(handle_); }
  // The host waits for that.
  Status Synchronize() const;

 private:
  Stream(std::shared_ptr<EventPool> events, Handle handle) : events_(std::move(events)), handle_(handle) {}

  const std::shared_ptr<EventPool> events_;
  const Handle handle_;
};

}  // namespace hvd::backend::cuda
