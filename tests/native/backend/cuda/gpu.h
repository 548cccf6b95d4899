// The GPU of the tests: that of the fake driver, or a real one where HVD_TEST_CUDA_LIBRARY names its driver's library.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_devices.h"
#include "native/backend/cuda/libraries.h"

namespace hvd::test {

using backend::cuda::AddressOf;
using backend::cuda::Context;
using backend::cuda::CudaDevices;
using backend::cuda::Driver;
using backend::cuda::Event;
using backend::cuda::Handle;
using backend::cuda::Stream;
using collective::Block;
using Bytes = std::vector<std::byte>;

inline std::shared_ptr<const Driver> OpenDriver() {
  const auto driver = Driver::Open(PathOfCuda());
  EXPECT_OK(driver.status());
  return *driver;
}

// Fails the test if a fake has seen a mistake by the end of the scope.
class NoFaults {
 public:
  ~NoFaults() {
    if (const std::string fault = fakes_.NewFault(); !fault.empty()) Fail(__FILE__, __LINE__, fault);
  }
  const Fakes& fakes() const { return fakes_; }

 private:
  const Fakes fakes_;
};

class Gpu {
 public:
  Gpu() {
    const auto made = CudaDevices::Of(PathOfCuda(), 0);
    EXPECT_OK(made.status());
    devices_ = *made;
  }
  ~Gpu() { Settle(); }
  CudaDevices& devices() const { return *devices_; }
  const Context& context() const { return *devices_->context(); }
  const Driver& driver() const { return context().driver(); }
  const Fakes& fakes() const { return no_faults_.fakes(); }

  std::shared_ptr<Stream> NewStream() const {
    auto made = Stream::Make(devices_->events());
    EXPECT_OK(made.status());
    return std::shared_ptr<Stream>(std::move(*made));
  }
  std::unique_ptr<Block> New(size_t bytes) const {
    auto block = devices_->Allocate(bytes);
    EXPECT_OK(block.status());
    return std::move(*block);
  }
  // Memory on the device with these bytes in it.
  std::unique_ptr<Block> Upload(const Bytes& bytes) const {
    auto block = New(bytes.size());
    const auto stream = NewStream();
    PutUpload(block->data, bytes, *stream);
    EXPECT_OK(stream->Synchronize());
    return block;
  }
  // `bytes` live until the stream has come there.
  void PutUpload(std::byte* to, const Bytes& bytes, const Stream& stream) const {
    EXPECT_OK(
        CallIn(context(), driver()->memcpy_htod_async, AddressOf(to), bytes.data(), bytes.size(), stream.handle()));
  }
  Bytes Download(const std::byte* from, size_t bytes) const {
    Bytes result(bytes);
    const auto stream = NewStream();
    EXPECT_OK(CallIn(context(), driver()->memcpy_dtoh_async, result.data(), AddressOf(from), bytes, stream->handle()));
    EXPECT_OK(stream->Synchronize());
    return result;
  }
  // Until all that was let go is free.
  void Settle() const {
    auto last = devices_->events()->Record(devices_->memory().taking().handle());
    EXPECT_OK(last.status());
    EXPECT_OK((*last)->Wait());
    devices_->memory().FreeUnused();
    EXPECT_OK(devices_->memory().giving().Synchronize());
  }

 private:
  const NoFaults no_faults_;
  std::shared_ptr<CudaDevices> devices_;
};

inline void InOtherThread(const std::function<void()>& body) { std::thread(body).join(); }

inline Bytes Filled(size_t bytes, int value) { return Bytes(bytes, static_cast<std::byte>(value)); }

inline bool Contains(const Status& status, const std::string& text) {
  if (status.message().find(text) != std::string::npos) return true;
  std::cerr << "  not in \"" << status.message() << "\": " << text << std::endl;
  return false;
}

}  // namespace hvd::test
