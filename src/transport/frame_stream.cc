#include "transport/frame_stream.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/siphash.h"

namespace hvd::transport {
namespace {

constexpr size_t kReadBytes = 64 << 10;  // room kept free for one read

uint32_t LoadLe32(const std::byte* p) {
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v |= static_cast<uint32_t>(p[i]) << (8 * i);
  return v;
}

}  // namespace

FrameStream::FrameStream(Channel* channel, int self_rank, std::optional<Key> key)
    : channel_(channel), self_rank_(self_rank), key_(key) {}

Status FrameStream::Fail(Status why) {
  failed_ = why;
  return why;
}

std::array<uint8_t, 16> FrameStream::Code128(int sender, uint64_t number, uint32_t head,
                                             std::span<const std::byte> payload) const {
  std::byte said[16];
  ByteWriter::StoreLe(said, static_cast<uint32_t>(sender));
  ByteWriter::StoreLe(said + 4, number);
  ByteWriter::StoreLe(said + 12, head);
  SipHash128 hash(*key_);
  hash.Update(said);
  hash.Update(payload);
  return hash.Finish();
}

Status FrameStream::Queue(std::span<const std::byte> payload) {
  HVD_TRY(failed_);
  const std::string who = std::string("[") + channel_->kind() + "] rank ";
  if (payload.size() > kMaxFrameBytes) {
    return Fail(Status(Code::kInternal, who + std::to_string(self_rank_) + " has a control frame of " +
                                            std::to_string(payload.size()) + " bytes for rank " +
                                            std::to_string(peer()) + "; at most " + std::to_string(kMaxFrameBytes) +
                                            " are allowed. Submit fewer tensors at once, or under shorter names."));
  }
  if (out_.size() - sent_ > kMaxQueuedFrameBytes) {
    return Fail(Status(Code::kPeerLost,
                       who + std::to_string(peer()) + " does not read: " + std::to_string(out_.size() - sent_) +
                           " bytes of control frames of rank " + std::to_string(self_rank_) + " wait for it."));
  }
  do {
    const std::span<const std::byte> piece = payload.first(std::min(payload.size(), kMaxPieceBytes));
    payload = payload.subspan(piece.size());
    QueuePiece(piece, !payload.empty());
  } while (!payload.empty());
  return Status();
}

void FrameStream::QueuePiece(std::span<const std::byte> payload, bool goes_on) {
  const size_t at = out_.size();
  out_.resize(at + header_bytes() + payload.size());
  std::byte* to = out_.data() + at;
  const uint32_t head = static_cast<uint32_t>(payload.size()) | (goes_on ? kGoesOn : 0);
  ByteWriter::StoreLe(to, head);
  if (key_) {
    const auto code = Code128(self_rank_, sent_pieces_, head, payload);
    std::memcpy(to + kHeadBytes, code.data(), kCodeBytes);
  }
  if (!payload.empty()) std::memcpy(to + header_bytes(), payload.data(), payload.size());
  ++sent_pieces_;
}

Status FrameStream::Send(std::span<const std::byte> payload) {
  HVD_TRY(Queue(payload));
  return Flush();
}

Status FrameStream::Flush() {
  HVD_TRY(failed_);
  while (sent_ < out_.size()) {
    const Result<size_t> n = channel_->Write(std::span(out_).subspan(sent_));
    if (!n.ok()) return Fail(n.status());
    if (*n == 0) break;
    sent_ += *n;
  }
  if (sent_ == out_.size()) {
    out_.clear();  // keeps its memory
    if (out_.capacity() > kMostKept) out_ = {};
    sent_ = 0;
  } else if (sent_ > out_.size() / 2 && sent_ >= kReadBytes) {
    out_.erase(out_.begin(), out_.begin() + static_cast<ptrdiff_t>(sent_));
    sent_ = 0;
  }
  return Status();
}

Status FrameStream::Fill(size_t want) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (begin_ > 0 && begin_ + want > in_.size()) {
    std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // Grows with what has arrived, not with what a length claims. The frame is incomplete, so there is room behind end_
  // afterwards.
  const size_t target = std::min(begin_ + want, std::max(2 * end_, kReadBytes));
  if (in_.size() < target) in_.resize(std::max(target, kReadBytes));
  const Result<size_t> n = channel_->Read(std::span(in_).subspan(end_));
  if (!n.ok()) return Fail(n.status());
  emptied_ = *n < in_.size() - end_;
  end_ += *n;
  return Status();
}

Status FrameStream::CheckHead(uint32_t head) {
  const size_t bytes = head & ~kGoesOn;
  const std::string who = std::string("[") + channel_->kind() + "] rank " + std::to_string(peer());
  if (bytes > kMaxPieceBytes || (bytes == 0 && (head & kGoesOn) != 0)) {
    return Fail(Status(Code::kInternal, who + " announced " + std::to_string(bytes) +
                                            " bytes of a control frame to rank " + std::to_string(self_rank_) +
                                            "; at most " + std::to_string(kMaxPieceBytes) + " go at once."));
  }
  if (frame_.size() + bytes > kMaxFrameBytes) {
    return Fail(Status(Code::kInternal, who + " sends rank " + std::to_string(self_rank_) +
                                            " a control frame that has more than the " +
                                            std::to_string(kMaxFrameBytes) + " bytes allowed."));
  }
  return Status();
}

Status FrameStream::CheckCode(uint32_t head, std::span<const std::byte> payload) {
  if (!key_ || EqualCodes(Code128(peer(), received_pieces_, head, payload),
                          std::span<const std::byte, kCodeBytes>(payload.data() - kCodeBytes, kCodeBytes))) {
    return Status();
  }
  return Fail(Status(Code::kInternal,
                     std::string("[") + channel_->kind() + "] control frame " + std::to_string(received_pieces_) +
                         " from rank " + std::to_string(peer()) + " to rank " + std::to_string(self_rank_) +
                         " fails authentication: it was changed, repeated or reordered on the way, or comes "
                         "from another job."));
}

Result<std::optional<FrameStream::Piece>> FrameStream::ReceivePiece() {
  for (;;) {
    const size_t there = end_ - begin_;
    size_t want = header_bytes();
    if (there >= kHeadBytes) {
      const uint32_t head = LoadLe32(in_.data() + begin_);
      HVD_TRY(CheckHead(head));
      want += head & ~kGoesOn;
      if (there >= want) {
        const auto payload = std::span<const std::byte>(in_).subspan(begin_ + header_bytes(), want - header_bytes());
        HVD_TRY(CheckCode(head, payload));
        ++received_pieces_;
        begin_ += want;
        return std::optional(Piece{payload, (head & kGoesOn) != 0});
      }
    }
    HVD_TRY(Fill(want));
    if (end_ - begin_ == there) return std::optional<Piece>();
  }
}

Result<std::optional<std::span<const std::byte>>> FrameStream::Receive() {
  using Frame = std::optional<std::span<const std::byte>>;
  HVD_TRY(failed_);
  if (std::exchange(delivered_, false)) frame_ = {};
  for (;;) {
    Result<std::optional<Piece>> piece = ReceivePiece();
    HVD_TRY(piece.status());
    if (!piece->has_value()) return Frame();
    const auto [payload, goes_on] = **piece;
    if (frame_.empty() && !goes_on) return Frame(payload);  // the usual one: as it lies in the buffer
    frame_.insert(frame_.end(), payload.begin(), payload.end());
    if (goes_on) continue;
    delivered_ = true;
    return Frame(frame_);
  }
}

}  // namespace hvd::transport
