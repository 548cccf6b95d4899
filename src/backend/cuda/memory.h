// Memory of one GPU for results, from the driver's pool: given and taken back as work of two small streams of our own,
// so that neither waits for what the device is doing.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/cuda/stream.h"
#include "collective/batch.h"

namespace hvd::backend::cuda {

using collective::Block;

// For memory that a device may use for ever, as far as we know: better lost than given to somebody else.
inline void Lose(std::unique_ptr<Block> block) { [[maybe_unused]] const Block* const lost = block.release(); }

class DeviceMemory final : public collective::BlockOwner, public std::enable_shared_from_this<DeviceMemory> {
 public:
  static Result<std::shared_ptr<DeviceMemory>> Make(std::shared_ptr<EventPool> events);
  ~DeviceMemory() override;

  // Streams may use it after *ready. kResource: there is none. The host waits for nothing.
  Result<std::unique_ptr<Block>> Allocate(size_t bytes, std::shared_ptr<DeviceEvent>* ready);
  // Streams may use it at once. The host waits for the allocation; where memory is short, that may be for blocks that
  // are still used.
  Result<std::unique_ptr<Block>> Allocate(size_t bytes);
  // From now on a block is free again when this stream, too, is through with what was put on it before the block was
  // let go. A stream that has gone uses nothing.
  void UsedOn(const std::shared_ptr<const Stream>& stream);
  // Lets go of a block that some other stream uses, until `last`. The host does not wait.
  void GiveBack(std::unique_ptr<Block> block, const DeviceEvent& last);
  void TakeBack(std::byte* data, size_t bytes) override;
  // Frees what has been taken back and nobody uses any more, where the pool leaves that to us. Callers that allocate or
  // give back do it, too.
  void FreeUnused();

  // Where allocations are ordered: for what has to come before anybody uses one.
  const Stream& giving() const { return *giving_; }
  // Where blocks are freed.
  const Stream& taking() const { return *taking_; }
  const Context& context() const { return events_->context(); }

 private:
  explicit DeviceMemory(std::shared_ptr<EventPool> events) : events_(std::move(events)) {}
  Status Obtain(size_t bytes, DeviceAddress* address, std::shared_ptr<DeviceEvent>* ready);
  Status NoMemory(size_t bytes, const Status& why) const;
  Status AwaitUsers();
  bool PoolOrders() const { return context().driver().platform().pools_order_streams; }

  // What has been taken back, and when it may be freed.
  struct Leaving {
    DeviceAddress address;
    std::shared_ptr<Event> unused;
  };

  const std::shared_ptr<EventPool> events_;
  std::unique_ptr<Stream> giving_;  // waits for nobody
  std::unique_ptr<Stream> taking_;  // waits for those who still use what is given back
  std::mutex mutex_;                // guards what follows
  std::deque<Leaving> leaving_;     // where the pool does not order streams
  std::vector<std::weak_ptr<const Stream>> users_;
};

// A buffer on the GPU that one stream works with, batch after batch. It only grows; what it held is lost then.
class Scratch {
 public:
  // `stream`: the only one that uses it. Both outlive it.
  Scratch(DeviceMemory& memory, const Stream& stream) : memory_(memory), stream_(stream) {}
  // NOLINTNEXTLINE(bugprone-exception-escape): without memory, and then the process ends.
  ~Scratch() { (void)Release(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // For what is put on the stream from now on. kResource.
  Result<std::byte*> Room(size_t bytes);
  // Gives it back when the stream is through with what has been put on it.
  Status Release();

 private:
  DeviceMemory& memory_;
  const Stream& stream_;
  std::unique_ptr<Block> block_;
};

// Memory of the host that no copy has to touch page by page, and kernels can reach. It only grows.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::shared_ptr<const Context> context) : context_(std::move(context)) {}
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // What it has given is free again: no work under way may still use it.
  void Reset();
  // Beside what it has given since then. kResource.
  Result<std::byte*> Room(size_t bytes);

 private:
  struct Piece {
    std::byte* data;
    size_t bytes, used;
  };
  const std::shared_ptr<const Context> context_;
  // The driver waits for the whole device before it takes memory back, so a piece that has become too small stays: all
  // of these have no more than the last one, as each is twice as large as the one before.
  std::vector<Piece> pieces_;
};

}  // namespace hvd::backend::cuda
