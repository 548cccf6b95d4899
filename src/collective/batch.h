// What the engine asks a collective to do: a batch of tensors over a group of ranks. Plain values; no ownership of
// tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/device.h"
#include "base/dtype.h"
#include "base/phases.h"
#include "base/status.h"

namespace hvd::transport {
class Channel;
class LocalView;
}  // namespace hvd::transport

namespace hvd::backend {
struct DeviceWay;
}

namespace hvd::collective {

class Flow;
class StoreChooser;

// Takes back memory that is not the host's own.
class BlockOwner {
 public:
  virtual ~BlockOwner() = default;
  // Any thread.
  virtual void TakeBack(std::byte* data, size_t bytes) = 0;
  // The program has it from now on.
  virtual void HandOver(std::byte*) {}
};

// A block of results that the core allocates (allgather, alltoall, reducescatter). 64-byte aligned.
struct Block {
  explicit Block(size_t bytes);
  // Such as memory of a device.
  Block(std::byte* given, size_t size, std::shared_ptr<BlockOwner> from)
      : data(given), bytes(size), owner(std::move(from)) {}
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  // Gives back what waits to be used again.
  static void FreeKept();
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<BlockOwner> owner;  // null: the host's memory
};

// Provides memory for results that is not the host's own.
class BlockGiver {
 public:
  virtual ~BlockGiver() = default;
  // Null: it has none of this size.
  virtual std::unique_ptr<Block> Give(size_t bytes) = 0;
};

// Of a tensor that lies on a device.
struct OnDevice {
  void* stream = nullptr;             // the framework's, which makes the input; null: this rank stands in
  std::shared_ptr<DeviceEvent> made;  // when the input is there and the output may be stored into
  // set by the collective:
  std::shared_ptr<DeviceEvent> ready;  // when the result is there and the input is no longer read
};

struct Tensor {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // allreduce, broadcast: given by the caller, may equal input. Others: see PlaceResult
  size_t room = 0;              // others: of the output that the caller gives, if it does
  BlockGiver* giver = nullptr;  // others: asked for memory before the host's own is taken; null: none
  std::vector<int64_t> shape;   // this rank's input
  size_t elems = 0;             // product of shape
  size_t row_elems = 1;         // product of shape[1:]
  std::vector<int64_t> splits;  // alltoall: rows for each member (always filled in by the engine)
  std::unique_ptr<OnDevice> device;  // null: input and output lie in the host's memory
  // set by the collective:
  std::unique_ptr<Block> result;
  std::vector<int64_t> received_rows;  // allgather, alltoall: rows from each member, in member order

  // Makes `output` point to memory for a result of this many bytes: the caller's, if it is for exactly as many, or a
  // block.
  Status PlaceResult(size_t bytes);
};

struct Batch {
  uint64_t seq = 0;  // from its place in the order log: equal on all members, rises
  OpType type = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // never kAverage: the engine turns it into kSum and a factor
  double prescale = 1.0, postscale = 1.0;
  bool on_device = false;  // the members' tensors lie on their devices (a joined rank's may not)
  // In two levels: -1 decide by topology, 0 never, 1 wherever that is possible. From its place in the log, as seq.
  int hierarchical = -1;            // what is reduced: allreduce, reducescatter
  int hierarchical_allgather = -1;  // what is only moved: allgather, broadcast, alltoall
  int root = 0;                     // member index; broadcast, and send: who sends
  int receiver = 0;                 // member index; send
  std::vector<Tensor> tensors;      // same number and order on every member; same total for allreduce
  std::shared_ptr<Phases> phases;   // null: no trace is written, or nothing lies on a device
  Flow* flow = nullptr;        // null: the inputs are there, and the outputs are needed at the end; local to a member
  bool awaits_device = false;  // it waits for progress of this rank's own device; for time-outs
  int waiting_for = -1;        // global rank that a collective over channels waits for now, or -1; for reports
};

// The ranks of one process set, seen from this one. Lives as long as the set.
struct Group {
  std::vector<int> ranks;          // global ranks, ascending; a rank's place here is its *member* index
  int index = 0;                   // this rank's member index
  std::vector<int> host_of;        // per member: host number
  std::vector<int> local_members;  // member indices on this rank's host, ascending (this one included)
  // Per member: data channel, or nullptr (itself, or a member of this host that shares memory).
  std::vector<transport::Channel*> channels;
  transport::LocalView* local = nullptr;  // of local_members; nullptr when there is one only
  std::shared_ptr<StoreChooser> stores;   // how to store into it, and into large results; never null
  bool deterministic = false;
  // How they move what lies on their devices (backend/introduction.h); null: they have not agreed yet.
  std::shared_ptr<const backend::DeviceWay> device_way;
  // Staging of the collectives over channels (two segments); one batch runs at a time.
  mutable std::vector<std::byte> scratch;

  int size() const { return static_cast<int>(ranks.size()); }
  bool one_host() const { return static_cast<int>(local_members.size()) == size(); }
};

}  // namespace hvd::collective
