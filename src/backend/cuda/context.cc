#include "backend/cuda/context.h"

namespace hvd::backend::cuda {
namespace {

// Of CUdevice_attribute.
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76, kMemoryPoolsSupported = 115;

}  // namespace

Result<std::shared_ptr<const Context>> Context::Open(std::shared_ptr<const Driver> driver, int device) {
  const std::shared_ptr<Context> context(new Context(std::move(driver), device));
  if (const Status retained = context->Retain(); !retained.ok())
    return Status(Code::kBackendUnavailable,
                  "GPU " + std::to_string(device) + " cannot be used: " + retained.message());
  return std::shared_ptr<const Context>(context);
}

Status Context::Retain() {
  int count = 0;
  HVD_TRY(driver_->Call((*driver_)->device_get_count, &count));
  if (device_ < 0 || device_ >= count) {
    return Status(Code::kBackendUnavailable, "the driver shows " + std::to_string(count) +
                                                 ", counted from 0 (CUDA_VISIBLE_DEVICES may hide others).");
  }
  HVD_TRY(driver_->Call((*driver_)->device_get, &number_, device_));
  HVD_TRY(Ask(number_));
  return driver_->Call((*driver_)->primary_ctx_retain, &handle_, number_);
}

Status Context::Ask(DeviceNumber number) {
  const Driver& driver = *driver_;
  char name[256] = {};
  HVD_TRY(driver.Call(driver->device_get_name, name, static_cast<int>(sizeof name) - 1, number));
  name_ = name;
  // The first version gives the whole GPU's number for a part of it.
  HVD_TRY(driver.Call(driver->device_get_uuid_v2 ? driver->device_get_uuid_v2 : driver->device_get_uuid, uuid_.data(),
                      number));
  int major = 0, minor = 0, pools = 0;
  // A driver that does not know the question has no pools.
  if (driver->device_get_attribute(&pools, kMemoryPoolsSupported, number) != 0) pools = 0;
  has_pools_ = pools != 0 && driver->mem_alloc_async && driver->mem_free_async;
  HVD_TRY(driver.Call(driver->device_get_attribute, &major, kCapabilityMajor, number));
  HVD_TRY(driver.Call(driver->device_get_attribute, &minor, kCapabilityMinor, number));
  capability_ = 10 * major + minor;
  return Status();
}

Context::~Context() {
  if (handle_ != nullptr) (void)(*driver_)->primary_ctx_release(number_);
}

Current::Current(const Context& context) : driver_(context.driver()), relaxed_(driver_) {
  if (driver_->ctx_get_current(&before_) != 0 || before_ == context.handle()) return;
  changed_ = driver_->ctx_set_current(context.handle()) == 0;
}

Current::~Current() {
  if (changed_) (void)driver_->ctx_set_current(before_);
}

Status RefuseCapture(const Context& context, Handle stream) {
  const Driver& driver = context.driver();
  int state = 0, code = 0;
  if (HasNoContext(stream)) {
    const Current current(context);
    code = driver->stream_is_capturing(stream, &state);
  } else {
    code = driver->stream_is_capturing(stream, &state);
  }
  if (code != 0 && code != kCaptureImplicit) return driver.Failed(driver->stream_is_capturing.name(), code);
  if (code == 0 && state == 0) return Status();
  return Status(Code::kUnsupported,
                "this CUDA stream is being captured into a graph, and a collective cannot be a part of one: the ranks "
                "agree on each anew. Leave the collective out of the captured graph, or call it between replays.");
}

}  // namespace hvd::backend::cuda
