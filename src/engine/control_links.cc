#include "engine/control_links.h"

#include <unistd.h>

namespace hvd {

void ControlLinks::AddRing(Neighbours* neighbours, int local, int self_rank) {
  Link link;
  auto ring = std::make_unique<RingChannel>(neighbours, local, RingKind::kControl);
  link.rank = neighbours->rank(local);
  link.local = local;
  link.ring = ring.get();
  link.stream = std::make_unique<FrameStream>(ring.get(), self_rank);
  link.channel = std::move(ring);
  links_.push_back(std::move(link));
  Index(links_.back().rank);
}

void ControlLinks::Index(int rank) {
  if (static_cast<int>(link_of_rank_.size()) <= rank) link_of_rank_.resize(rank + 1, -1);
  link_of_rank_[rank] = static_cast<int>(links_.size()) - 1;
}

void ControlLinks::Add(std::unique_ptr<Channel> channel, int self_rank, const FrameStream::Key& key) {
  Link link;
  link.rank = channel->peer();
  link.stream = std::make_unique<FrameStream>(channel.get(), self_rank, key);
  link.channel = std::move(channel);
  links_.push_back(std::move(link));
  Index(links_.back().rank);
}

Status ControlLinks::Send(int to_rank, std::span<const std::byte> frame) {
  if (to_rank < static_cast<int>(link_of_rank_.size()) && link_of_rank_[to_rank] >= 0)
    return links_[link_of_rank_[to_rank]].stream->Send(frame);
  return Status(Code::kInternal, "no control link to rank " + std::to_string(to_rank) + ".");
}

Status ControlLinks::Receive(const Deliver& deliver, bool* moved) {
  for (Link& link : links_) {
    if (link.broken) continue;
    if (Status s = ReceiveFrom(link, deliver, moved); !s.ok()) {
      link.broken = true;
      broken_rank_ = link.rank;
      return s;
    }
  }
  return Status();
}

Status ControlLinks::ReceiveFrom(Link& link, const Deliver& deliver, bool* moved) {
  if (link.stream->has_unsent()) HVD_TRY(link.stream->Flush());
  if (link.ring != nullptr && !link.ring->readable()) {
    // The common case, and all of it: one load. A ring whose peer died is told by its liveness descriptor.
    return Status();
  }
  for (;;) {
    auto frame = link.stream->Receive();
    HVD_TRY(frame.status());
    if (!frame->has_value()) return Status();
    *moved = true;
    HVD_TRY(deliver(link.rank, **frame));
  }
}

bool ControlLinks::AnythingToRead() const {
  for (const Link& link : links_) {
    if (link.ring != nullptr && link.ring->readable()) return true;
  }
  return false;  // sockets are level with the sleeper: an edge arrives for what comes later
}

bool ControlLinks::HasUnsent() const {
  for (const Link& link : links_) {
    if (!link.broken && link.stream->has_unsent()) return true;
  }
  return false;
}

void ControlLinks::DropReadRings(Neighbours* neighbours) const {
  // What is not in a control ring (progress words) is of no interest to a neighbour that is idle.
  neighbours->DropPendingRings([this](int local) {
    for (const Link& link : links_) {
      if (link.local == local) return link.ring->unread() == 0;
    }
    return true;
  });
}

void ControlLinks::CloseInChild() {
  for (Link& link : links_) {
    if (link.channel->fd() >= 0) close(link.channel->fd());
  }
}

}  // namespace hvd
