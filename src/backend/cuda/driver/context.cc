#include "backend/cuda/driver/context.h"

namespace hvd::backend::cuda {

int Standing::Get(const Driver& driver, Standing* standing) {
  return driver->get_device ? driver->get_device(&standing->device) : driver->ctx_get_current(&standing->context);
}

int Standing::Set(const Driver& driver, const Standing& standing) {
  return driver->set_device ? driver->set_device(standing.device) : driver->ctx_set_current(standing.context);
}

Result<std::shared_ptr<const Context>> Context::Open(std::shared_ptr<const Driver> driver, int device) {
  const std::shared_ptr<Context> context(new Context(std::move(driver), device));
  if (const Status retained = context->Retain(); !retained.ok())
    return Status(Code::kBackendUnavailable,
                  "GPU " + std::to_string(device) + " cannot be used: " + retained.message());
  return std::shared_ptr<const Context>(context);
}

Status Context::Retain() {
  HVD_TRY(driver_->Call((*driver_)->device_get_count, &visible_));
  if (device_ < 0 || device_ >= visible_) {
    return Status(Code::kBackendUnavailable, "the driver shows " + std::to_string(visible_) + ", counted from 0 (" +
                                                 driver_->platform().hides + ").");
  }
  HVD_TRY(driver_->Call((*driver_)->device_get, &number_, device_));
  HVD_TRY(Ask(number_));
  if (driver_->platform().kind == Platform::kCuda)
    return driver_->Call((*driver_)->primary_ctx_retain, &standing_.context, number_);
  standing_.device = number_;
  return Status();
}

Status Context::Ask(DeviceNumber number) {
  const Driver& driver = *driver_;
  char name[256] = {};
  HVD_TRY(driver.Call(driver->device_get_name, name, static_cast<int>(sizeof name) - 1, number));
  name_ = name;
  const Platform& platform = driver.platform();
  int major = 0, minor = 0, pools = 0;
  // A driver that does not know the question has no pools.
  if (driver->device_get_attribute(&pools, platform.memory_pools_supported, number) != 0) pools = 0;
  has_pools_ = pools != 0 && driver->mem_alloc_async && driver->mem_free_async;
  HVD_TRY(driver.Call(driver->device_get_attribute, &major, platform.capability_major, number));
  HVD_TRY(driver.Call(driver->device_get_attribute, &minor, platform.capability_minor, number));
  capability_ = 10 * major + minor;
  HVD_TRY(AskPlace(number));
  return AskUuid(number);
}

Status Context::AskPlace(DeviceNumber number) {
  const Driver& driver = *driver_;
  char place[32] = {};  // "0000:c1:00.0"
  HVD_TRY(driver.Call(driver->device_get_pci_bus_id, place, static_cast<int>(sizeof place) - 1, number));
  for (size_t at = 0; place[at] != 0; ++at) place_[at % place_.size()] ^= static_cast<std::byte>(place[at]);
  return Status();
}

// The first version of CUDA's function gives the whole GPU's number for a part of it. Of AMD's GPUs those that have
// none all say the same; their places on the bus, at least, are different on one host. Parts of one GPU differ there in
// the last number alone, the function, which is no attribute.
Status Context::AskUuid(DeviceNumber number) {
  const Driver& driver = *driver_;
  HVD_TRY(driver.Call(driver->device_get_uuid_v2 ? driver->device_get_uuid_v2 : driver->device_get_uuid, uuid_.data(),
                      number));
  if (driver.platform().kind == Platform::kCuda) return Status();
  for (size_t at = 0; at < uuid_.size(); ++at) uuid_[at] ^= place_[at];
  return Status();
}

Context::~Context() {
  if (standing_.context != nullptr) (void)(*driver_)->primary_ctx_release(number_);
}

thread_local const Context* Current::entered_ = nullptr;

Current::Current(const Context& context) : context_(context), outer_(entered_) {
  if (outer_ == &context) return;
  entered_ = &context;
  const Driver& driver = context.driver();
  relaxed_.emplace(driver);
  if (Standing::Get(driver, &before_) != 0 || before_ == context.standing()) return;
  changed_ = Standing::Set(driver, context.standing()) == 0;
}

Current::~Current() {
  if (outer_ == &context_) return;
  entered_ = outer_;
  if (changed_) (void)Standing::Set(context_.driver(), before_);
}

Status RefuseCapture(const Context& context, Handle stream) {
  const Driver& driver = context.driver();
  const CurrentFor current(context, stream);
  int state = 0;
  const int code = driver->stream_is_capturing(stream, &state);
  if (code != 0 && code != kCaptureImplicit) return driver.Failed(driver->stream_is_capturing.name(), code);
  if (code == 0 && state == 0) return Status();
  return Status(
      Code::kUnsupported,
      "this " + std::string(driver.platform().name) +
          " stream is being captured into a graph, and a collective cannot be a part of one: the ranks "
          "negotiate every call. Leave the collective out of the captured graph, or call it between replays.");
}

}  // namespace hvd::backend::cuda
