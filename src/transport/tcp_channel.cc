#include "transport/tcp_channel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hvd::transport {
namespace {

bool SetOption(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

bool SetNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

bool IsTcp(int fd) {
  int domain = 0;
  socklen_t n = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && (domain == AF_INET || domain == AF_INET6);
}

// Idle connection: first probe after half of the time, then one per second.
bool SetLiveness(int fd, TcpUse use) {
  constexpr int kProbes = kTcpDeadAfterS / 2;
  return SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1) &&
         SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kTcpDeadAfterS - kProbes) &&
         SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1) && SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes) &&
         // 0: whoever opened the connection may have set it.
         SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, use == TcpUse::kData ? 0 : kTcpDeadAfterS * 1000);
}

// Looked at half a second before the rest, so that all of them come to the same end in time.
constexpr double kSilentAfterS = kTcpDeadAfterS - 0.5;

}  // namespace

Result<std::unique_ptr<TcpChannel>> TcpChannel::Adopt(int fd, int self, int peer, TcpUse use) {
  std::unique_ptr<TcpChannel> channel(new TcpChannel(fd, self, peer));
  if (!SetNonBlocking(fd) || (IsTcp(fd) && (!SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1) || !SetLiveness(fd, use)))) {
    return Status(Code::kInternal, "[tcp] cannot set up the connection of rank " + std::to_string(self) + " to rank " +
                                       std::to_string(peer) + " (descriptor " + std::to_string(fd) +
                                       "): " + std::strerror(errno) + ".");
  }
  return channel;
}

TcpChannel::~TcpChannel() {
  if (fd_ >= 0) close(fd_);
}

Result<size_t> TcpChannel::Write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return size_t{0};
  for (;;) {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return Lost("sending", bytes.size(), errno);
  }
}

Result<size_t> TcpChannel::Read(std::span<std::byte> bytes) {
  if (bytes.empty()) return size_t{0};  // recv would answer 0, which means "closed"
  for (;;) {
    const ssize_t n = recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n > 0) return static_cast<size_t>(n);
    if (n == 0) return Lost("receiving", bytes.size(), 0);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return Lost("receiving", bytes.size(), errno);
  }
}

Status TcpChannel::CheckPeer(double now) {
  tcp_info info = {};
  socklen_t n = sizeof info;
  if (!silent_.ok() || getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &n) != 0) return silent_;  // or it is no TCP
  const double heard_ms = std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv);
  const Silence::Facts facts{info.tcpi_unacked > 0 || info.tcpi_probes > 0, info.tcpi_last_data_sent / 1e3,
                             heard_ms / 1e3, info.tcpi_probes};
  if (silence_.Judge(facts, now, kSilentAfterS))
    silent_ = NoAnswer("nothing has come back for " + std::to_string(static_cast<int>(heard_ms / 1e3)) + " s");
  return silent_;
}

Status TcpChannel::NoAnswer(const std::string& fact) const {
  return Status(Code::kPeerLost, "[tcp] rank " + std::to_string(peer_) + " no longer answers rank " +
                                     std::to_string(self_) + ": " + fact +
                                     "; is the link between their hosts cut, or a host down?");
}

Status TcpChannel::Lost(const char* doing, size_t bytes, int error) {
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
    return silent_ = NoAnswer(std::strerror(error));
  std::string text = "[tcp] rank " + std::to_string(peer_) + " closed the connection while rank " +
                     std::to_string(self_) + " was " + doing + " " + std::to_string(bytes) + " bytes";
  if (error != 0) text += std::string(": ") + std::strerror(error);
  return Status(Code::kPeerLost, text + ".");
}

}  // namespace hvd::transport
