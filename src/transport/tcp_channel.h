// TcpChannel: a Channel over a connected stream socket that it is given and then owns. Between hosts; also between
// ranks of one host that share no memory. Non-blocking. Knows no address, opens no connection.
//
// Death of the other host (no reset arrives, nobody closes) is noticed by the kernel, without any wake-up of this
// process: keepalive probes on an idle connection, and TCP_USER_TIMEOUT where bytes are under way. The latter is set on
// control connections only: Linux (5.11 and later) also counts a peer that is alive but does not read (a stopped
// process with a full window) as timed out, and in the data plane that must stay a CollectiveTimeoutError after the
// user's own deadline. There Silence (silence.h) tells the two apart, while a batch waits.
//
// A link that is cut for less than the silence that is believed, and comes back, must be survived, but the kernel may
// send nothing when it does: it repeats what is not acknowledged after 0.2, 0.6, 1.4, 3 and 6.2 s. TCP_RTO_MAX_MS
// (Linux 6.15) has it repeat every second. Where the kernel does not have it, twice the time is allowed (TcpPatience).
#pragma once

#include <memory>
#include <string>

#include "transport/channel.h"
#include "transport/silence.h"

namespace hvd::transport {

enum class TcpUse { kControl, kData };

// How long one connection waits for a host that does not answer.
struct TcpPatience {
  int probes = 0;             // of an idle connection, one per second
  int user_timeout_ms = 0;    // of a control connection: bytes that are not acknowledged
  double silent_after_s = 0;  // of any connection while a batch waits: since the first question without an answer
};

// Pure. silence_s: shorter cuts are survived, if they are at least half a second shorter. steady: the kernel repeats
// what is not acknowledged at least once a second.
TcpPatience PatienceOf(double silence_s, bool steady);

class TcpChannel final : public Channel {
 public:
  // Takes over `fd` also when it fails. Sets non-blocking mode, no delay, keepalive. `peer`, `self`: global ranks;
  // silence_s: see PatienceOf.
  static Result<std::unique_ptr<TcpChannel>> Adopt(int fd, int self, int peer, TcpUse use, double silence_s);
  ~TcpChannel() override;
  TcpChannel(const TcpChannel&) = delete;
  TcpChannel& operator=(const TcpChannel&) = delete;

  Result<size_t> Write(std::span<const std::byte> bytes) override { return Send(bytes, 0); }
  Result<size_t> WriteAhead(std::span<const std::byte> bytes) override;
  Result<size_t> Read(std::span<std::byte> bytes) override;
  Status CheckPeer(double now) override;
  int fd() const override { return fd_; }
  int peer() const override { return peer_; }
  const char* kind() const override { return "tcp"; }

 private:
  TcpChannel(int fd, int self, int peer) : fd_(fd), self_(self), peer_(peer) {}
  bool SetOptions(TcpUse use, double silence_s);
  Result<size_t> Send(std::span<const std::byte> bytes, int flags);
  Status Lost(const char* doing, size_t bytes, int error);
  Status NoAnswer(const std::string& fact) const;

  int fd_, self_, peer_;
  double silent_after_s_ = 0;
  Silence silence_;
  Status silent_;  // how it was found that nothing gets through any more
};

}  // namespace hvd::transport
