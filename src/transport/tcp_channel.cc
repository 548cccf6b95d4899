#include "transport/tcp_channel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
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

constexpr int kRtoMaxMs = 44;    // TCP_RTO_MAX_MS, which older headers do not name
constexpr int kRepeatMs = 1000;  // the least that the kernel takes

}  // namespace

TcpPatience PatienceOf(double silence_s, bool steady) {
  TcpPatience patience;
  // The last answer may have come a second before the cut, and the first probe that finds the link again is sent up to
  // a second after it is back: so one probe more than there are seconds, and one that is not sent any more.
  patience.probes = static_cast<int>(std::ceil(silence_s)) + 1;
  // What is repeated every second comes through at most half a second after the silence. Otherwise the pause before the
  // repetition that comes through is as long as all that was before it.
  patience.silent_after_s = steady ? silence_s + 0.75 : 2 * silence_s + 1;
  // Later, so that it does not come before what has looked closely; and an idle connection has all of its probes.
  patience.user_timeout_ms = static_cast<int>(1000 * (steady ? std::ceil(silence_s) + 1.25 : 2 * silence_s + 2));
  return patience;
}

bool TcpChannel::SetOptions(TcpUse use, double silence_s) {
  if (!SetNonBlocking(fd_)) return false;
  const bool tcp = IsTcp(fd_);
  const TcpPatience patience = PatienceOf(silence_s, tcp && SetOption(fd_, IPPROTO_TCP, kRtoMaxMs, kRepeatMs));
  silent_after_s_ = patience.silent_after_s;
  return !tcp || (SetOption(fd_, IPPROTO_TCP, TCP_NODELAY, 1) && SetOption(fd_, SOL_SOCKET, SO_KEEPALIVE, 1) &&
                  SetOption(fd_, IPPROTO_TCP, TCP_KEEPIDLE, 1) && SetOption(fd_, IPPROTO_TCP, TCP_KEEPINTVL, 1) &&
                  SetOption(fd_, IPPROTO_TCP, TCP_KEEPCNT, patience.probes) &&
                  // 0: the code that opened the connection may have set it.
                  SetOption(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, use == TcpUse::kData ? 0 : patience.user_timeout_ms));
}

Result<std::unique_ptr<TcpChannel>> TcpChannel::Adopt(int fd, int self, int peer, TcpUse use, double silence_s) {
  std::unique_ptr<TcpChannel> channel(new TcpChannel(fd, self, peer));
  if (!channel->SetOptions(use, silence_s)) {
    return Status(Code::kInternal, "[tcp] cannot set up the connection of rank " + std::to_string(self) + " to rank " +
                                       std::to_string(peer) + " (descriptor " + std::to_string(fd) +
                                       "): " + std::strerror(errno) + ".");
  }
  return channel;
}

TcpChannel::~TcpChannel() {
  if (fd_ >= 0) close(fd_);
}

// The kernel keeps a packet that is not full until the next call, or for 0.2 s.
Result<size_t> TcpChannel::WriteAhead(std::span<const std::byte> bytes) { return Send(bytes, MSG_MORE); }

Result<size_t> TcpChannel::Send(std::span<const std::byte> bytes, int flags) {
  if (bytes.empty()) return size_t{0};
  for (;;) {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), flags | MSG_NOSIGNAL | MSG_DONTWAIT);
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
  if (!silent_.ok() || getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &n) != 0) return silent_;  // or it is not TCP
  const double heard_ms = std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv);
  const Silence::Facts facts{info.tcpi_unacked > 0 || info.tcpi_probes > 0, info.tcpi_last_data_sent / 1e3,
                             heard_ms / 1e3, info.tcpi_probes};
  if (silence_.Judge(facts, now, silent_after_s_))
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
