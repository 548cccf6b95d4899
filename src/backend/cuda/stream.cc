#include "backend/cuda/stream.h"

namespace hvd::backend::cuda {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

}  // namespace

Result<std::unique_ptr<Stream>> Stream::Make(std::shared_ptr<EventPool> events) {
  const Context& context = events->context();
  const Driver& driver = context.driver();
  const Current current(context);
  int lowest = 0, highest = 0;
  HVD_TRY(driver.Call(driver->ctx_get_stream_priority_range, &lowest, &highest));
  Handle made = nullptr;
  HVD_TRY(driver.Call(driver->stream_create_with_priority, &made, kNonBlocking, highest));
  return std::unique_ptr<Stream>(new Stream(std::move(events), made));
}

Stream::~Stream() { (void)events_->context().driver()->stream_destroy(handle_); }

Status Stream::Synchronize() const {
  const Driver& driver = events_->context().driver();
  const Relaxed relaxed(driver);
  return driver.Call(driver->stream_synchronize, handle_);
}

}  // namespace hvd::backend::cuda
