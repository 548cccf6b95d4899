#include "engine/links/connections.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/limits.h"
#include "engine/links/config.h"
#include "negotiation/values/tree.h"
#include "transport/tcp_channel.h"

namespace hvd::engine {

Result<std::shared_ptr<transport::Region>> Connections::MapArenaFromMemfd(int rank, int fd, size_t bytes) {
  Result<std::shared_ptr<transport::Region>> region = transport::MapMemfd(fd, bytes);
  if (!region.ok()) return region.status().Because("rank " + std::to_string(rank));
  return region;
}

Result<std::unique_ptr<Connections>> Connections::Open(const hvd_config& c, Descriptors* given, const MapArena& map) {
  std::unique_ptr<Connections> connections(new Connections(c, std::move(given->wish)));
  HVD_TRY(connections->OpenDoorbell(given));
  HVD_TRY(connections->ConnectLocal(c, given, map));
  for (int i = 0; i < c.n_peers; ++i) HVD_TRY(connections->ConnectRemote(c.peers[i], &given->peers[i]));
  HVD_TRY(connections->Complete());
  return connections;
}

Connections::Connections(const hvd_config& c, Fd wishes)
    : rank_(c.rank),
      size_(c.size),
      tree_(negotiation::BuildTree(std::vector<int>(c.host_of_rank, c.host_of_rank + c.size))),
      leaders_(DirectLeadersOf(c)),
      cores_seen_(CoresPerRank(c)),
      silence_s_(c.link_timeout_s),
      openings_(c.rank, std::move(wishes), c.link_timeout_s) {
  transports_.rank = rank_;
  transports_.host_of_rank.assign(c.host_of_rank, c.host_of_rank + size_);
  transports_.local_of_rank.assign(size_, -1);
  transports_.data.resize(size_);
}

Status Connections::OpenDoorbell(Descriptors* given) {
  if (!given->doorbell.valid()) given->doorbell.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!given->doorbell.valid()) return SystemFailure("cannot make a doorbell", errno);
  doorbell_ = given->doorbell.get();
  fcntl(doorbell_, F_SETFL, fcntl(doorbell_, F_GETFL) | O_NONBLOCK);
  return Status();
}

Status Connections::ConnectLocal(const hvd_config& c, Descriptors* given, const MapArena& map) {
  std::map<int, Descriptors::Peer*> by_rank;
  for (int i = 0; i < c.n_peers; ++i) {
    if (given->peers[i].memory.valid()) by_rank[c.peers[i].rank] = &given->peers[i];
  }
  if (by_rank.empty()) {
    lone_doorbell_ = std::move(given->doorbell);
    return Status();
  }
  const int local_size = static_cast<int>(by_rank.size()) + 1;
  const size_t resident_bytes = static_cast<size_t>(std::max<int64_t>(0, c.resident_bytes));
  HVD_TRY(MapNeighbours(by_rank, given, map, transport::Arena::FixedBytes(local_size) + resident_bytes));
  if (cores_seen_ == 0) neighbours()->SayCoresAreShared();
  for (const auto& [r, peer] : by_rank) {
    transports_.data[r] =
        std::make_unique<transport::RingChannel>(neighbours(), local_of(r), transport::RingKind::kData);
    if (Speaks(r)) links_.AddRing(neighbours(), local_of(r), rank_);
  }
  return Status();
}

// The ranks of this host, in rank order, are the neighbours. bytes: of an arena.
Status Connections::MapNeighbours(const std::map<int, Descriptors::Peer*>& peers, Descriptors* given,
                                  const MapArena& map, size_t bytes) {
  std::vector<transport::Neighbours::Member> members;
  int self = 0;
  for (int r = 0; r < size_; ++r) {
    const bool own = r == rank_;
    const auto peer = peers.find(r);
    if (!own && peer == peers.end()) continue;
    if (own) self = static_cast<int>(members.size());
    transports_.local_of_rank[r] = static_cast<int>(members.size());
    Result<std::shared_ptr<transport::Region>> region =
        map(r, (own ? given->memory : peer->second->memory).Release(), bytes);
    HVD_TRY(region.status());
    members.push_back({r, *region, std::move(own ? given->doorbell : peer->second->doorbell)});
  }
  Result<std::unique_ptr<transport::Neighbours>> neighbours = transport::Neighbours::Create(std::move(members), self);
  HVD_TRY(neighbours.status());
  transports_.neighbours = std::move(*neighbours);
  return Status();
}

Status Connections::ConnectRemote(const hvd_peer& p, Descriptors::Peer* given) {
  if (given->data.valid()) {
    auto channel =
        transport::TcpChannel::Adopt(given->data.Release(), rank_, p.rank, transport::TcpUse::kData, silence_s_);
    HVD_TRY(channel.status());
    transports_.data[p.rank] = std::move(*channel);
  }
  if (given->control.valid() && Speaks(p.rank)) {
    auto channel =
        transport::TcpChannel::Adopt(given->control.Release(), rank_, p.rank, transport::TcpUse::kControl, silence_s_);
    HVD_TRY(channel.status());
    transport::FrameStream::Key key;
    std::copy(std::begin(p.key), std::end(p.key), key.begin());
    links_.Add(std::move(*channel), rank_, key);
  }
  return Status();
}

Status Connections::Complete() {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || transports_.data[r]) continue;
    if (openings_.expected()) {
      transports_.data[r] = openings_.Promise(r);
      continue;
    }
    return Status(Code::kInvalidArgument,
                  "hvd_init: no way from rank " + std::to_string(rank_) + " to rank " + std::to_string(r) + ".");
  }
  return Status();
}

Status Connections::CheckPeers(double now, const std::function<bool(int rank)>& has_left) const {
  for (const auto& channel : transports_.data) {
    if (channel && !has_left(channel->peer())) HVD_TRY(channel->CheckPeer(now));
  }
  return Status();
}

Status Connections::WatchWith(Waker* waker) {
  waker_ = waker;
  if (openings_.expected()) waker->ExpectSockets();
  for (const auto& channel : transports_.data) {
    if (channel && channel->fd() >= 0) HVD_TRY(waker->WatchSocket(channel->fd(), channel->peer()));
  }
  for (const auto& [rank, fd] : links_.Sockets()) HVD_TRY(waker->WatchSocket(fd, rank));
  return Status();
}

void Connections::DetachInChild() {
  for (const auto& channel : transports_.data) {
    if (channel && channel->fd() >= 0) close(channel->fd());
  }
  openings_.CloseInChild();
  links_.CloseInChild();
  if (const auto shared = heap()) shared->DetachInChild();
}

}  // namespace hvd::engine
