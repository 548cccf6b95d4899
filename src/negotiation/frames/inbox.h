// Inbox: the incoming frame streams of a node, one per sender and direction: the next expected number, and records that
// arrived too early. Where small operations are done directly, a sender may be ahead of this node by frames that are
// still in flight from others; its records wait, in order, until these arrive. A record waits only for earlier ones, so
// no two wait for one another. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "negotiation/frames/wire.h"
#include "negotiation/values/tree.h"

namespace hvd::negotiation {

class Inbox {
 public:
  struct Stream {
    int from = -1;
    Direction way = Direction::kUp;
    int source = 0;  // of what comes up
    uint32_t received = 0;
    std::vector<std::byte> waits;
  };
  // Bytes of one stream that may wait. What is on its way is seldom more than a few frames.
  static constexpr size_t kMostWaiting = size_t{64} << 20;

  explicit Inbox(const Place& place);

  // Null: nothing comes from there that way.
  Stream* Find(int from, Direction way);
  Status Keep(Stream* stream, std::span<const std::byte> records);
  bool any_waits() const { return waiting_ > 0; }
  bool waits_from(int rank) const;
  // Those beside the tree last.
  std::vector<Stream>& streams() { return streams_; }
  // What waits there; it does not any more.
  std::vector<std::byte> TakeWaiting(Stream* stream) {
    waiting_ -= stream->waits.empty() ? 0 : 1;
    return std::exchange(stream->waits, {});
  }

 private:
  std::vector<Stream> streams_;  // few: looked through
  int waiting_ = 0;              // streams with something that waits
};

}  // namespace hvd::negotiation
