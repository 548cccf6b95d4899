#include "engine/links/control_links.h"

#include <unistd.h>

namespace hvd::engine {

void ControlLinks::AddRing(transport::Neighbours* neighbours, int local, int self_rank) {
  Link& link = links_.emplace_back();
  auto ring = std::make_unique<transport::RingChannel>(neighbours, local, transport::RingKind::kControl);
  link.rank = neighbours->rank(local);
  link.local = local;
  link.ring = ring.get();
  link.stream = std::make_unique<transport::FrameStream>(ring.get(), self_rank);
  link.channel = std::move(ring);
  Index(link.rank);
}

void ControlLinks::Index(int rank) {
  if (static_cast<int>(link_of_rank_.size()) <= rank) link_of_rank_.resize(rank + 1, -1);
  link_of_rank_[rank] = static_cast<int>(links_.size()) - 1;
}

void ControlLinks::Add(std::unique_ptr<transport::Channel> channel, int self_rank,
                       const transport::FrameStream::Key& key) {
  Link& link = links_.emplace_back();
  link.rank = channel->peer();
  link.stream = std::make_unique<transport::FrameStream>(channel.get(), self_rank, key);
  link.channel = std::move(channel);
  Index(link.rank);
}

Status ControlLinks::Send(int to_rank, std::span<const std::byte> frame) {
  if (to_rank < static_cast<int>(link_of_rank_.size()) && link_of_rank_[to_rank] >= 0)
    return links_[link_of_rank_[to_rank]].stream->Send(frame);
  return Status(Code::kInternal, "no control link to rank " + std::to_string(to_rank) + ".");
}

Status ControlLinks::Receive(const Deliver& deliver, bool* moved) {
  for (Link& link : links_) {
    if (link.broken) continue;
    if (Status s = ReceiveFrom(link, deliver, moved); !s.ok()) return Break(&link, std::move(s));
  }
  return Status();
}

Status ControlLinks::CheckPeers(double now) {
  for (Link& link : links_) {
    if (link.broken) continue;
    if (Status s = link.channel->CheckPeer(now); !s.ok()) return Break(&link, std::move(s));
  }
  return Status();
}

Status ControlLinks::Break(Link* link, Status why) {
  link->broken = true;
  broken_rank_ = link->rank;
  return why;
}

Status ControlLinks::ReceiveFrom(Link& link, const Deliver& deliver, bool* moved) {
  if (link.stream->has_unsent()) HVD_TRY(link.stream->Flush());
  if (link.ring != nullptr && !link.ring->readable()) {
    // The common case, and all of it: two loads. The liveness descriptor reports a ring whose peer died; what this
    // rank could not send is reported here.
    return link.stream->failed();
  }
  for (;;) {
    auto frame = link.stream->Receive();
    HVD_TRY(frame.status());
    if (!frame->has_value()) return Status();
    *moved = true;
    HVD_TRY(deliver(link.rank, **frame));
    // Of a socket another look is a system call. What comes later has an edge of its own; and who has moved something
    // looks again before it sleeps.
    if (link.ring == nullptr && link.stream->read_all()) return Status();
  }
}

bool ControlLinks::AnythingToRead() const {
  for (const Link& link : links_) {
    if (!link.broken && link.ring != nullptr && link.ring->readable()) return true;
  }
  return false;  // sockets are level with the sleeper: an edge arrives for what comes later
}

bool ControlLinks::HasUnsent() const {
  for (const Link& link : links_) {
    if (!link.broken && link.stream->has_unsent()) return true;
  }
  return false;
}

size_t ControlLinks::UnsentTo(int rank) const {
  if (rank < 0 || rank >= static_cast<int>(link_of_rank_.size()) || link_of_rank_[rank] < 0) return 0;
  return links_[link_of_rank_[rank]].stream->unsent();
}

void ControlLinks::DropReadRings(transport::Neighbours* neighbours) const {
  // What is not in a control ring (progress words) is of no interest to a neighbour that is idle.
  neighbours->DropPendingRings([this](int local) {
    for (const Link& link : links_) {
      if (link.local == local) return link.ring->unread() == 0;
    }
    return true;
  });
}

std::vector<std::pair<int, int>> ControlLinks::Sockets() const {
  std::vector<std::pair<int, int>> sockets;
  for (const Link& link : links_) {
    if (link.channel->fd() >= 0) sockets.emplace_back(link.rank, link.channel->fd());
  }
  return sockets;
}

void ControlLinks::CloseInChild() {
  for (Link& link : links_) {
    if (link.channel->fd() >= 0) close(link.channel->fd());
  }
}

}  // namespace hvd::engine
