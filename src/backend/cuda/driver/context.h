// Context: one GPU and its primary context, which frameworks use as well: addresses and streams of theirs are ours. To
// CUDA it is a thing of its own, retained for that GPU only: on any other it would cost half a gigabyte. To HIP it is
// the device.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backend/cuda/driver/driver.h"

namespace hvd::backend::cuda {

// What is current in a thread: a context to CUDA, a device to HIP; the other one stays as it is here.
struct Standing {
  Handle context = nullptr;
  int device = 0;

  static int Get(const Driver& driver, Standing* standing);
  static int Set(const Driver& driver, const Standing& standing);
  bool operator==(const Standing&) const = default;
};

class Context {
 public:
  // `device`: as the driver counts in this process, from 0.
  static Result<std::shared_ptr<const Context>> Open(std::shared_ptr<const Driver> driver, int device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return *driver_; }
  int device() const { return device_; }
  int visible() const { return visible_; }  // GPUs that the driver shows to this process
  const Standing& standing() const { return standing_; }
  // The GPU's own number, or that of a part of it (MIG): equal in all processes that use it.
  const std::array<std::byte, 16>& uuid() const { return uuid_; }
  // Its place on the bus, which parts of one GPU share on NVIDIA's, and which is unlike that of any other of its host.
  const std::array<std::byte, 16>& place() const { return place_; }
  const std::string& name() const { return name_; }     // "NVIDIA H100 80GB HBM3"
  int capability() const { return capability_; }        // 90: compute capability 9.0; 94: gfx94x
  bool has_memory_pools() const { return has_pools_; }  // mem_alloc_async works
  // "GPU 0 (NVIDIA H100 80GB HBM3)", for messages.
  std::string Text() const { return "GPU " + std::to_string(device_) + " (" + name_ + ")"; }

 private:
  Context(std::shared_ptr<const Driver> driver, int device) : driver_(std::move(driver)), device_(device) {}
  Status Retain();
  Status Ask(DeviceNumber number);
  Status AskUuid(DeviceNumber number);
  Status AskPlace(DeviceNumber number);

  const std::shared_ptr<const Driver> driver_;
  const int device_;
  int visible_ = 0;
  DeviceNumber number_ = 0;
  Standing standing_;
  std::array<std::byte, 16> uuid_ = {}, place_ = {};
  std::string name_;
  int capability_ = 0;
  bool has_pools_ = false;
};

// While it lives, this thread may ask and allocate although some thread of the process captures a stream: by default a
// capture forbids that to all threads, and breaks when one does.
class Relaxed {
 public:
  explicit Relaxed(const Driver& driver) : driver_(driver) { Exchange(); }
  ~Relaxed() { Exchange(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  void Exchange() {
    if (driver_->thread_exchange_stream_capture_mode) (void)driver_->thread_exchange_stream_capture_mode(&mode_);
  }

  const Driver& driver_;
  int mode_ = 2;  // relaxed, to both; then what it was before
};

// While it lives, the context is current in this thread, for calls that need that: who allocates, creates, loads. Calls
// with a stream or an event do not, but for streams without a context of their own (HasNoContext). A failure shows in
// the calls themselves. Inside another one for the same context it does nothing: each call of the driver takes half a
// microsecond, and some after a pause.
class Current {
 public:
  explicit Current(const Context& context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  static thread_local const Context* entered_;  // of the innermost one that did something

  const Context& context_;
  const Context* const outer_;
  std::optional<Relaxed> relaxed_;
  Standing before_;
  bool changed_ = false;
};

// The default streams, which are one for each context: 0, the legacy one (1) and the thread's own (2), alike in both.
inline bool HasNoContext(Handle stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

// For calls with this stream.
class CurrentFor {
 public:
  CurrentFor(const Context& context, Handle stream) {
    if (HasNoContext(stream)) current_.emplace(context);
  }

 private:
  std::optional<Current> current_;
};

// Calls a function of the driver with the context current.
template <class... Arguments>
Status CallIn(const Context& context, const Function<Arguments...>& function,
              std::type_identity_t<Arguments>... arguments) {
  const Current current(context);
  return context.driver().Call(function, arguments...);
}

// Calls a function of the driver that works on `stream`, and on it alone: it launches, records or waits.
template <class... Arguments>
Status CallOn(const Context& context, Handle stream, const Function<Arguments...>& function,
              std::type_identity_t<Arguments>... arguments) {
  const CurrentFor current(context, stream);
  return context.driver().Call(function, arguments...);
}

// kUnsupported: the stream is being captured into a graph.
Status RefuseCapture(const Context& context, Handle stream);

}  // namespace hvd::backend::cuda
