// ControlLinks: the framed streams to this rank's neighbours in the control tree. Frames go through shared memory on
// one host, through authenticated sockets between hosts. Used by the holder of the driver role only.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/frame_stream.h"
#include "transport/neighbours.h"
#include "transport/ring_channel.h"

namespace hvd::engine {

class ControlLinks {
 public:
  void AddRing(transport::Neighbours* neighbours, int local, int self_rank);
  // `key`: of the frames' authentication code.
  void Add(std::unique_ptr<transport::Channel> channel, int self_rank, const transport::FrameStream::Key& key);

  Status Send(int to_rank, std::span<const std::byte> frame);
  // Hands every whole frame that has arrived to deliver(from_rank, frame) and sends what still waits. The first failure
  // ends it and is remembered: broken_rank() says whose it was; that link is not used again.
  using Deliver = std::function<Status(int from_rank, std::span<const std::byte> frame)>;
  Status Receive(const Deliver& deliver, bool* moved);
  int broken_rank() const { return broken_rank_; }
  // The same for a link whose other host answers nothing any more; see Channel::CheckPeer. The kernel's own time-out
  // begins with what was sent after the link was cut, so it ends later.
  Status CheckPeers(double now);
  bool AnythingToRead() const;
  bool HasUnsent() const;
  // Bytes that wait for the connection to that rank.
  size_t UnsentTo(int rank) const;
  // A neighbour that has read everything need not be rung.
  void DropReadRings(transport::Neighbours* neighbours) const;
  // (rank, descriptor) of the links that are sockets.
  std::vector<std::pair<int, int>> Sockets() const;
  void CloseInChild();

 private:
  struct Link {
    int rank = -1;
    int local = -1;  // neighbour, or -1: a socket
    std::unique_ptr<transport::Channel> channel;
    const transport::RingChannel* ring = nullptr;  // the channel, when it is one
    std::unique_ptr<transport::FrameStream> stream;
    std::atomic<bool> broken{false};  // AnythingToRead looks at it without the role
  };
  Status ReceiveFrom(Link& link, const Deliver& deliver, bool* moved);
  Status Break(Link* link, Status why);

  void Index(int rank);

  std::deque<Link> links_;
  std::vector<int> link_of_rank_;  // -1: none
  int broken_rank_ = -1;
};

}  // namespace hvd::engine
