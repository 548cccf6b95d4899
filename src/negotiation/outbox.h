// Outbox: the frames that wait to leave a node: one to the parent, and one for all children (the log is the same for
// each). Records are coalesced, buffers re-used. Used by the node.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "negotiation/wire.h"

namespace hvd {

class Outbox {
 public:
  Outbox(uint32_t rank, uint64_t epoch) : rank_(rank), epoch_(epoch) {
    up_.resize(kFrameHeaderBytes);
    down_.resize(kFrameHeaderBytes);
  }

  // A cached mark of the whole subtree, sent at log version `version`. Inline: the hot path.
  void Mark(uint32_t id, uint64_t version) {
    if (run_at_ == 0 || version != up_version_) OpenRun(version);
    ByteWriter(&up_).Varint(id);
    ++run_length_;
  }
  // Starts another record upwards; `version` as above.
  ByteWriter Up(UpRecord record, uint64_t version) {
    CloseRun();
    SayVersion(version);
    ByteWriter w(&up_);
    w.U8(static_cast<uint8_t>(record));
    return w;
  }
  ByteWriter Down(LogRecord record) {
    ByteWriter w(&down_);
    w.U8(static_cast<uint8_t>(record));
    return w;
  }
  // Records of others, passed on unchanged.
  void ForwardUp(std::span<const std::byte> records, uint64_t version) {
    CloseRun();
    SayVersion(version);
    ByteWriter(&up_).Bytes(records);
  }
  void ForwardDown(std::span<const std::byte> records) { ByteWriter(&down_).Bytes(records); }

  // A node with nothing to say still says now and then how far it has obeyed: others keep what an older contribution
  // may need.
  void ReportVersion(uint64_t version) {
    if (version < up_version_ + kVersionLag) return;
    CloseRun();
    SayVersion(version);
  }

  bool has_up() const { return up_.size() > kFrameHeaderBytes; }
  bool has_down() const { return down_.size() > kFrameHeaderBytes; }
  // What stands in the down frame from `offset` on (offset 0 = first record).
  std::span<const std::byte> down_records(size_t offset) const {
    return std::span(down_).subspan(kFrameHeaderBytes + offset);
  }
  size_t down_size() const { return down_.size() - kFrameHeaderBytes; }

  // The finished frame; valid until Clear.
  std::span<const std::byte> UpFrame() {
    CloseRun();
    WriteHeader({Direction::kUp, rank_, epoch_, up_number_++}, up_.data());
    return up_;
  }
  std::span<const std::byte> DownFrame() {
    WriteHeader({Direction::kDown, rank_, epoch_, down_number_++}, down_.data());
    return down_;
  }
  void ClearUp() {
    up_.resize(kFrameHeaderBytes);
    run_at_ = 0;
  }
  void ClearDown() { down_.resize(kFrameHeaderBytes); }

 private:
  static constexpr uint64_t kVersionLag = 1024;

  void SayVersion(uint64_t version) {
    if (version == up_version_) return;
    up_version_ = version;
    ByteWriter w(&up_);
    w.U8(static_cast<uint8_t>(UpRecord::kVersion));
    w.Varint(version);
  }
  void OpenRun(uint64_t version) {
    CloseRun();
    SayVersion(version);
    ByteWriter w(&up_);
    w.U8(static_cast<uint8_t>(UpRecord::kMarks));
    run_at_ = up_.size();
    run_length_ = 0;
    w.U32(0);
  }
  void CloseRun() {
    if (run_at_ == 0) return;
    ByteWriter::StoreLe(up_.data() + run_at_, run_length_);
    run_at_ = 0;
  }

  uint32_t rank_;
  uint64_t epoch_;
  std::vector<std::byte> up_, down_;
  uint64_t up_version_ = 0;
  size_t run_at_ = 0;  // where the open run of marks keeps its length; 0: none is open
  uint32_t run_length_ = 0;
  uint32_t up_number_ = 0, down_number_ = 0;
};

}  // namespace hvd
