// StagedFlow: the way of one batch from the device to pinned memory of the host and back, in pieces and on a stream for
// each direction, so that the bus carries both while the host's ways reduce what lies between them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_devices.h"
#include "collective/flow.h"
#include "collective/shm/ranges.h"

namespace hvd::backend::staged {

// What the copies need. Outlives the flow, as all of the memory does.
struct Ways {
  cuda::Packing& packing;
  const cuda::Context& context;
  const cuda::Stream& in;   // from the device
  const cuda::Stream& out;  // to it
  Phases* phases;           // of the batch, or null
};

class StagedFlow final : public collective::Flow {
 public:
  // piece: bytes that are copied at once.
  StagedFlow(const Ways& ways, size_t piece) : ways_(ways), piece_(piece) {}

  // The next tensor. `at`: where it is in the host's memory; from, to: on the device, null: it is not copied this way.
  // made: when it is there and the result may be stored; null: at once.
  void Add(const std::byte* from, std::byte* at, std::byte* to, size_t bytes, std::shared_ptr<DeviceEvent> made);
  // More than has been asked for is put on its way, so that it comes while the host works.
  Task Arrived(size_t bytes) override;
  Status Left(size_t bytes) override;
  size_t total() const { return in_.total(); }

 private:
  // Where a tensor begins, and from when on it may be touched.
  struct Made {
    size_t at;
    std::shared_ptr<DeviceEvent> when;
  };
  // What has been put on a stream so far, and which tensors the stream waits for.
  struct Sent {
    size_t bytes = 0, held = 0;
  };
  Status Send(const cuda::Stream& stream, const collective::shm::Ranges& ranges, size_t until, Sent* sent);
  Status SendPiece();

  void Phase(const char* name, const cuda::Stream& stream) const {
    if (ways_.phases != nullptr) ways_.phases->Begin(name, stream.handle());
  }

  const Ways ways_;
  const size_t piece_;
  collective::shm::Ranges in_, out_;
  std::vector<Made> made_;
  Sent sent_in_, sent_out_;
  std::vector<std::shared_ptr<cuda::Event>> ends_;  // of the pieces in, in this order
  size_t arrived_ = 0;                              // pieces
};

}  // namespace hvd::backend::staged
