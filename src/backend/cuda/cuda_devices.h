// CudaDevices: the GPU of this rank: moments, memory and copies for the engine, and the parts from which backends make
// more of them.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backend/cuda/clock.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/packing/packing.h"
#include "backend/devices.h"

namespace hvd::backend::cuda {

class CudaDevices final : public Devices {
 public:
  // The one of this driver's library and this device, as CUDA counts in this process from 0. The first call makes it;
  // it lives as long as the process, because events and results may: a job that starts again finds it as it was. Any
  // thread.
  static Result<std::shared_ptr<CudaDevices>> Of(const std::string& cuda_library, int device);

  Place place() const override { return context_->device() + 1; }
  Result<std::shared_ptr<DeviceEvent>> Mark(void* stream) override;
  Result<std::unique_ptr<Block>> Allocate(size_t bytes) override { return memory_->Allocate(bytes); }
  Result<std::unique_ptr<Block>> Identity(DType dtype, ReduceOp op, size_t elems,
                                          std::shared_ptr<DeviceEvent>* ready) override;
  // `keep`, if any, is from this object's memory.
  Status Copy(void* to, const void* from, size_t bytes, const std::shared_ptr<DeviceEvent>& when, void* stream,
              std::unique_ptr<Block> keep) override;
  std::shared_ptr<DeviceClock> clock() const override { return clock_; }

  const std::shared_ptr<const Context>& context() const { return context_; }
  const std::shared_ptr<EventPool>& events() const { return events_; }
  DeviceMemory& memory() const { return *memory_; }
  Packing& packing() { return packing_; }

 private:
  CudaDevices(std::shared_ptr<EventPool> events, std::shared_ptr<DeviceMemory> memory,
              std::shared_ptr<const Context> context)
      : context_(std::move(context)),
        events_(std::move(events)),
        memory_(std::move(memory)),
        packing_(context_),
        clock_(std::make_shared<Clock>(context_)) {}
  static Result<std::shared_ptr<CudaDevices>> Make(const std::string& cuda_library, int device);
  Status PutCopy(void* to, const void* from, size_t bytes, const DeviceEvent* when, Handle stream);
  Status Repeat(DeviceAddress to, uint64_t pattern, size_t bytes, Handle stream);

  const std::shared_ptr<const Context> context_;
  const std::shared_ptr<EventPool> events_;
  const std::shared_ptr<DeviceMemory> memory_;
  Packing packing_;
  const std::shared_ptr<Clock> clock_;
};

}  // namespace hvd::backend::cuda
