// FrameStream: whole control frames over a Channel, in order, with a bounded size and, between hosts, a message
// authentication code. Used by the engine for negotiation: over a RingChannel without a code (a process that can store
// into the shared memory owns the process anyway), over a TcpChannel with one. Knows nothing of what a frame says. Not
// thread-safe: the holder of the driver role only.
//
// On the wire a frame is one piece or several, little-endian:  u32 head | [16 bytes code] | payload
// The head holds the bytes of the piece and, in its highest bit, whether the frame goes on in the next. The code is
// SipHash-2-4-128 under the connection's key of (sender's rank, number of the piece in this direction, head, payload):
// a piece that was changed, repeated, left out, reordered or sent back to its sender has a wrong code. After any error
// the stream stays failed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "transport/channel.h"

namespace hvd::transport {

inline constexpr size_t kMaxPieceBytes = size_t{1} << 20;
// The negotiation of about a million tensors at once.
inline constexpr size_t kMaxFrameBytes = size_t{256} << 20;
// Unsent bytes beyond which the peer is considered stuck: Send fails instead of queueing without bound.
inline constexpr size_t kMaxQueuedFrameBytes = size_t{256} << 20;

class FrameStream {
 public:
  using Key = std::array<uint8_t, 16>;

  // `channel` must outlive the stream. `self_rank`: global rank of this side (the other side's is channel->peer()).
  FrameStream(Channel* channel, int self_rank, std::optional<Key> key = std::nullopt);

  // Queues one frame (may be empty) and writes as much of the queue as fits now. Fails when the frame or the queue is
  // too large.
  Status Send(std::span<const std::byte> payload);
  // Only queues: several frames, then one Flush, make one system call.
  Status Queue(std::span<const std::byte> payload);
  // Writes as much of the queue as fits now. has_unsent() says whether to come back when the channel can be written.
  Status Flush();
  bool has_unsent() const { return sent_ < out_.size(); }
  size_t unsent() const { return out_.size() - sent_; }
  // Why nothing more can be sent or received; ok: it can.
  const Status& failed() const { return failed_; }

  // The next whole frame, or nullopt when it is not there yet. The view is valid until the next Receive. Frames that
  // arrived whole before the peer closed are delivered first; then the failure is.
  Result<std::optional<std::span<const std::byte>>> Receive();

  // Whether the last look at the channel has emptied it, and everything from it is delivered: another look at once
  // would find nothing.
  bool read_all() const { return begin_ == end_ && emptied_; }

  int peer() const { return channel_->peer(); }
  Channel* channel() const { return channel_; }

 private:
  static constexpr size_t kHeadBytes = 4, kCodeBytes = 16;
  static constexpr uint32_t kGoesOn = uint32_t{1} << 31;
  static constexpr size_t kMostKept = 2 * kMaxPieceBytes;  // of a buffer that a large frame has left
  size_t header_bytes() const { return key_ ? kHeadBytes + kCodeBytes : kHeadBytes; }
  std::array<uint8_t, 16> Code128(int sender, uint64_t number, uint32_t head, std::span<const std::byte> payload) const;
  void QueuePiece(std::span<const std::byte> payload, bool goes_on);
  struct Piece {
    std::span<const std::byte> payload;
    bool goes_on = false;
  };
  Result<std::optional<Piece>> ReceivePiece();
  Status CheckHead(uint32_t head);
  Status CheckCode(uint32_t head, std::span<const std::byte> payload);
  Status Fail(Status why);
  // Reads what is there, up to `want` bytes in the buffer.
  Status Fill(size_t want);

  Channel* channel_;
  int self_rank_;
  std::optional<Key> key_;
  Status failed_;
  std::vector<std::byte> out_;  // frames not yet taken by the channel begin at sent_
  size_t sent_ = 0;
  std::vector<std::byte> in_;  // [begin_, end_) was read and not yet delivered
  size_t begin_ = 0, end_ = 0;
  bool emptied_ = false;          // by the last read
  std::vector<std::byte> frame_;  // the pieces so far of one that has several
  bool delivered_ = false;        // it was whole, and has been looked at
  uint64_t sent_pieces_ = 0, received_pieces_ = 0;
};

}  // namespace hvd::transport
