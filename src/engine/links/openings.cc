#include "engine/links/openings.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "transport/tcp_channel.h"

namespace hvd::engine {

std::unique_ptr<transport::Channel> Openings::Promise(int peer) {
  auto channel = std::make_unique<transport::LaterChannel>(peer, [this](int rank) { return Tell(rank); });
  promised_[peer] = channel.get();
  return channel;
}

// A full socket is read soon; one that nobody reads any more ends with the time-out of the collective.
bool Openings::Tell(int peer) const {
  if (peer > rank_) return true;
  const auto number = static_cast<int32_t>(peer);
  ssize_t n;
  do {
    n = send(wishes_.get(), &number, sizeof number, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n == sizeof number;
}

Status Openings::Deliver(int peer, Fd connection, const Status& why_not) {
  if (promised_.find(peer) == promised_.end()) {
    return Status(Code::kInvalidArgument,
                  "rank " + std::to_string(rank_) + " waits for no connection to rank " + std::to_string(peer) + ".");
  }
  Delivery delivery{peer, nullptr, why_not};
  Status unusable;
  if (connection.valid()) {
    auto way = transport::TcpChannel::Adopt(connection.Release(), rank_, peer, transport::TcpUse::kData, silence_s_);
    unusable = delivery.status = way.status();
    if (way.ok()) delivery.way = std::move(*way);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  delivered_.push_back(std::move(delivery));
  any_.store(true, std::memory_order_seq_cst);
  return unusable;
}

bool Openings::Take(Waker* waker) {
  if (!any()) return false;
  std::vector<Delivery> taken;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    any_.store(false, std::memory_order_seq_cst);
    taken.swap(delivered_);
  }
  for (Delivery& delivery : taken) {
    transport::LaterChannel* const channel = promised_.at(delivery.peer);
    if (channel->open()) continue;  // the first one counts
    if (delivery.way != nullptr) delivery.status = waker->WatchSocket(delivery.way->fd(), delivery.peer);
    if (delivery.status.ok() && delivery.way != nullptr) {
      channel->Open(std::move(delivery.way));
    } else {
      channel->Fail(std::move(delivery.status));
    }
  }
  return true;
}

}  // namespace hvd::engine
