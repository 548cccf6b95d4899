#include "transport/frame_stream.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/bytes.h"
#include "base/siphash.h"

namespace hvd {
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

std::array<uint8_t, 16> FrameStream::Code128(int sender, uint64_t number, std::span<const std::byte> payload) const {
  std::byte head[12];
  ByteWriter::StoreLe(head, static_cast<uint32_t>(sender));
  ByteWriter::StoreLe(head + 4, number);
  SipHash128 hash(*key_);
  hash.Update(head);
  hash.Update(payload);  // its length is part of the hash
  return hash.Finish();
}

Status FrameStream::Queue(std::span<const std::byte> payload) {
  HVD_TRY(failed_);
  const std::string who = std::string("[") + channel_->kind() + "] rank " + std::to_string(self_rank_);
  if (payload.size() > kMaxFrameBytes) {
    return Fail(Status(Code::kInternal, who + " has a control frame of " + std::to_string(payload.size()) +
                                            " bytes for rank " + std::to_string(peer()) + "; at most " +
                                            std::to_string(kMaxFrameBytes) + " are allowed."));
  }
  if (out_.size() - sent_ + payload.size() > kMaxQueuedFrameBytes) {
    return Fail(Status(Code::kPeerLost, std::string("[") + channel_->kind() + "] rank " + std::to_string(peer()) +
                                            " does not read: " + std::to_string(out_.size() - sent_) +
                                            " bytes of control frames of rank " + std::to_string(self_rank_) +
                                            " wait for it."));
  }
  const size_t at = out_.size();
  out_.resize(at + header_bytes() + payload.size());
  std::byte* to = out_.data() + at;
  ByteWriter::StoreLe(to, static_cast<uint32_t>(payload.size()));
  if (key_) {
    const auto code = Code128(self_rank_, sent_frames_, payload);
    std::memcpy(to + kLengthBytes, code.data(), kCodeBytes);
  }
  if (!payload.empty()) std::memcpy(to + header_bytes(), payload.data(), payload.size());
  ++sent_frames_;
  return Status();
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
  end_ += *n;
  return Status();
}

Result<std::optional<std::span<const std::byte>>> FrameStream::Receive() {
  HVD_TRY(failed_);
  for (;;) {
    const size_t there = end_ - begin_;
    size_t want = header_bytes();
    if (there >= kLengthBytes) {
      const size_t bytes = LoadLe32(in_.data() + begin_);
      if (bytes > kMaxFrameBytes) {
        return Fail(Status(Code::kInternal, std::string("[") + channel_->kind() + "] rank " + std::to_string(peer()) +
                                                " announced a control frame of " + std::to_string(bytes) +
                                                " bytes to rank " + std::to_string(self_rank_) + "; at most " +
                                                std::to_string(kMaxFrameBytes) + " are allowed."));
      }
      want = header_bytes() + bytes;
      if (there >= want) {
        const std::span<const std::byte> payload = std::span(in_).subspan(begin_ + header_bytes(), bytes);
        if (key_ &&
            !EqualCodes(Code128(peer(), received_frames_, payload),
                        std::span<const std::byte, kCodeBytes>(in_.data() + begin_ + kLengthBytes, kCodeBytes))) {
          return Fail(Status(Code::kInternal, std::string("[") + channel_->kind() + "] control frame " +
                                                  std::to_string(received_frames_) + " from rank " +
                                                  std::to_string(peer()) + " to rank " + std::to_string(self_rank_) +
                                                  " fails authentication: it was changed, repeated or "
                                                  "reordered on the way, or comes from another job."));
        }
        ++received_frames_;
        begin_ += want;
        return std::optional(payload);
      }
    }
    const size_t before = end_ - begin_;
    HVD_TRY(Fill(want));
    if (end_ - begin_ == before) return std::optional<std::span<const std::byte>>();
  }
}

}  // namespace hvd
