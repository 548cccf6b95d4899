#include "backend/cuda/cuda_devices.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "collective/kernels/kernels.h"

namespace hvd::backend::cuda {
namespace {

constexpr size_t kPatternBytes = 8;  // the largest element

struct Made {
  std::mutex mutex;  // guards what follows
  std::map<std::pair<std::string, int>, std::shared_ptr<CudaDevices>> devices;
};

// Never destroyed: see CudaDevices::Of.
Made& AllMade() {
  static auto* const kAll = new Made;
  return *kAll;
}

}  // namespace

Result<std::shared_ptr<CudaDevices>> CudaDevices::Of(const std::string& cuda_library, int device) {
  Made& all = AllMade();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::shared_ptr<CudaDevices>& kept = all.devices[{cuda_library, device}];
  if (kept == nullptr) {
    Result<std::shared_ptr<CudaDevices>> made = Make(cuda_library, device);
    HVD_TRY(made.status());
    kept = *made;
  }
  return kept;
}

Result<std::shared_ptr<CudaDevices>> CudaDevices::Make(const std::string& cuda_library, int device) {
  const Result<std::shared_ptr<const Driver>> driver = Driver::Open(cuda_library);
  HVD_TRY(driver.status());
  const Result<std::shared_ptr<const Context>> context = Context::Open(*driver, device);
  HVD_TRY(context.status());
  auto events = std::make_shared<EventPool>(*context);
  const Result<std::shared_ptr<DeviceMemory>> memory = DeviceMemory::Make(events);
  HVD_TRY(memory.status());
  std::shared_ptr<CudaDevices> devices(new CudaDevices(std::move(events), *memory, *context));
  // With the context: drivers load kernels while the device has nothing to do, and keep other threads from it meanwhile
  // (docs/gpu.md). Callers that need them get the reason if it cannot.
  (void)devices->packing().Prepare();
  return devices;
}

Result<std::shared_ptr<DeviceEvent>> CudaDevices::Mark(void* stream) {
  const CurrentFor current(*context_, stream);
  HVD_TRY(RefuseCapture(*context_, stream));
  const Result<std::shared_ptr<Event>> event = events_->Record(stream);
  HVD_TRY(event.status());
  return std::shared_ptr<DeviceEvent>(*event);
}

Result<std::unique_ptr<Block>> CudaDevices::Identity(DType dtype, ReduceOp op, size_t elems,
                                                     std::shared_ptr<DeviceEvent>* ready) {
  // Whole patterns: the last one may reach behind the last element.
  const size_t bytes = (elems * SizeOf(dtype) + kPatternBytes - 1) / kPatternBytes * kPatternBytes;
  uint64_t pattern = 0;
  collective::kernels::FillIdentity(dtype, op, &pattern, kPatternBytes / SizeOf(dtype));
  Result<std::unique_ptr<Block>> block = memory_->Allocate(bytes, ready);
  HVD_TRY(block.status());
  const Stream& stream = memory_->giving();
  Status put = Repeat(AddressOf((*block)->data), pattern, bytes, stream.handle());
  const Result<std::shared_ptr<Event>> filled = stream.Record();
  // It may be given back unused, as an allocation: then it is filled before it is freed.
  if (put.ok() && filled.ok()) put = (*filled)->HoldBack(memory_->taking().handle());
  if (!put.ok() || !filled.ok()) {
    if (!stream.Synchronize().ok()) Lose(std::move(*block));
    return put.ok() ? filled.status() : put;
  }
  *ready = *filled;
  return block;
}

// The driver repeats patterns of 4 bytes; of 8 it gets the first one, and doubles what is there.
Status CudaDevices::Repeat(DeviceAddress to, uint64_t pattern, size_t bytes, Handle stream) {
  const Driver& driver = context_->driver();
  const Current current(*context_);
  const auto low = static_cast<unsigned>(pattern), high = static_cast<unsigned>(pattern >> 32);
  if (bytes == 0) return Status();
  if (low == high) return driver.Call(driver->memset_d32_async, to, low, bytes / 4, stream);
  HVD_TRY(driver.Call(driver->memset_d32_async, to, low, 1, stream));
  HVD_TRY(driver.Call(driver->memset_d32_async, to + 4, high, 1, stream));
  for (size_t done = kPatternBytes; done < bytes; done *= 2)
    HVD_TRY(driver.Call(driver->memcpy_dtod_async, to + done, to, std::min(done, bytes - done), stream));
  return Status();
}

Status CudaDevices::PutCopy(void* to, const void* from, size_t bytes, const DeviceEvent* when, Handle stream) {
  HVD_TRY(RefuseCapture(*context_, stream));
  if (when != nullptr) HVD_TRY(when->HoldBack(stream));
  if (bytes == 0) return Status();
  return CallIn(*context_, context_->driver()->memcpy_dtod_async, AddressOf(to), AddressOf(from), bytes, stream);
}

Status CudaDevices::Copy(void* to, const void* from, size_t bytes, const std::shared_ptr<DeviceEvent>& when,
                         void* stream, std::unique_ptr<Block> keep) {
  Status put = PutCopy(to, from, bytes, when.get(), stream);
  if (keep == nullptr) return put;
  if (!put.ok()) {
    if (when != nullptr) memory_->GiveBack(std::move(keep), *when);
    return put;
  }
  const Result<std::shared_ptr<Event>> copied = events_->Record(stream);
  if (!copied.ok()) {
    Lose(std::move(keep));
    return copied.status();
  }
  memory_->GiveBack(std::move(keep), **copied);
  return Status();
}

}  // namespace hvd::backend::cuda
