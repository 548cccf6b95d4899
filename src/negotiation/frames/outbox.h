// Outbox: the frames that wait to leave a node: one to the parent, and one for all children (the log is the same for
// each); and what small operations bring, beside them, for other leaders and for the own host. Records are coalesced,
// buffers re-used. What goes up is preceded by the version at which it was sent, and what goes up or, from the root,
// down by the operations that were done directly before.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "negotiation/frames/versions.h"
#include "negotiation/frames/wire.h"
#include "negotiation/values/turn.h"

namespace hvd::negotiation {

class Outbox {
 public:
  // *versions must outlive this.
  Outbox(uint32_t rank, uint64_t epoch, const Versions* versions) : rank_(rank), epoch_(epoch), versions_(versions) {
    for (std::vector<std::byte>* frame : {&up_, &down_, &beside_, &near_}) frame->resize(kFrameHeaderBytes);
  }

  // A cached mark of the whole subtree. Inline: the hot path.
  void Mark(uint32_t id) {
    if (run_at_ == 0 || versions_->now() != up_version_ || !done_.empty()) OpenRun();
    ByteWriter(&up_).Varint(id);
    ++run_length_;
  }
  // Starts another record upwards.
  ByteWriter Up(UpRecord record) {
    CloseRun();
    SayDone(static_cast<uint8_t>(UpRecord::kDone), &up_);
    SayVersion();
    ByteWriter w(&up_);
    w.U8(static_cast<uint8_t>(record));
    return w;
  }
  // Of the root, but for the end of everything.
  ByteWriter Down(LogRecord record) {
    if (rank_ == 0) SayDone(static_cast<uint8_t>(LogRecord::kDone), &down_);
    ByteWriter w(&down_);
    w.U8(static_cast<uint8_t>(record));
    return w;
  }
  // Starts a record for the other leaders, or for the children on this host.
  ByteWriter Beside() { return ByteWriter(&beside_); }
  ByteWriter Near() { return ByteWriter(&near_); }
  // An operation is done directly; this is its id's next turn. Others hear of it before whatever else comes from here.
  void Done(uint32_t id, const Turn& next) { done_[id] = next; }
  // Records of others, passed on unchanged.
  void ForwardDown(std::span<const std::byte> records) { ByteWriter(&down_).Bytes(records); }

  // A node with nothing to say still says now and then how far it has obeyed: others keep what an older contribution
  // may need.
  void ReportVersion() {
    if (versions_->now() < up_version_ + kVersionLag) return;
    CloseRun();
    SayDone(static_cast<uint8_t>(UpRecord::kDone), &up_);
    SayVersion();
  }

  bool has_up() const { return up_.size() > kFrameHeaderBytes; }
  bool has_down() const { return down_.size() > kFrameHeaderBytes; }
  bool has_beside() const { return beside_.size() > kFrameHeaderBytes; }
  bool has_near() const { return near_.size() > kFrameHeaderBytes; }
  // The records of the down frame that this has not given out yet: what the root still has to obey itself.
  std::span<const std::byte> TakeUnread() { return std::span(down_).subspan(std::exchange(read_, down_.size())); }

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
  std::span<const std::byte> BesideFrame() {
    WriteHeader({Direction::kBeside, rank_, epoch_, beside_number_++}, beside_.data());
    return beside_;
  }
  std::span<const std::byte> NearFrame() {
    WriteHeader({Direction::kBeside, rank_, epoch_, near_number_++}, near_.data());
    return near_;
  }
  void ClearBeside() { beside_.resize(kFrameHeaderBytes); }
  void ClearNear() { near_.resize(kFrameHeaderBytes); }
  void ClearUp() {
    up_.resize(kFrameHeaderBytes);
    run_at_ = 0;
  }
  void ClearDown() {
    down_.resize(kFrameHeaderBytes);
    read_ = kFrameHeaderBytes;
  }

 private:
  static constexpr uint64_t kVersionLag = 1024;

  void SayVersion() {
    if (versions_->now() == up_version_) return;
    up_version_ = versions_->now();
    ByteWriter w(&up_);
    w.U8(static_cast<uint8_t>(UpRecord::kVersion));
    w.Varint(up_version_);
  }
  void SayDone(uint8_t record, std::vector<std::byte>* frame) {
    if (done_.empty()) return;
    ByteWriter w(frame);
    w.U8(record);
    w.Varint(done_.size());
    for (const auto& [id, turn] : done_) {
      w.Varint(id);
      WriteTurn(turn, &w);
    }
    done_.clear();
  }
  void OpenRun() {
    CloseRun();
    SayDone(static_cast<uint8_t>(UpRecord::kDone), &up_);
    SayVersion();
    ByteWriter w(&up_);
    w.U8(static_cast<uint8_t>(UpRecord::kMarks));
    w.U32(0);
    run_at_ = up_.size() - sizeof(uint32_t);  // only now: there may have been no memory for it
    run_length_ = 0;
  }
  void CloseRun() {
    if (run_at_ == 0) return;
    ByteWriter::StoreLe(up_.data() + run_at_, run_length_);
    run_at_ = 0;
  }

  uint32_t rank_;
  uint64_t epoch_;
  const Versions* versions_;
  std::vector<std::byte> up_, down_, beside_, near_;
  std::unordered_map<uint32_t, Turn> done_;  // and not said yet
  size_t read_ = kFrameHeaderBytes;          // of down_, by the root
  uint64_t up_version_ = 0;
  size_t run_at_ = 0;  // where the open run of marks keeps its length; 0: none is open
  uint32_t run_length_ = 0;
  uint32_t up_number_ = 0, down_number_ = 0, beside_number_ = 0, near_number_ = 0;
};

}  // namespace hvd::negotiation
