#include "collective/channels/ahead.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace hvd::collective::channels {
namespace {

Status Unexpected(const transport::Channel& from, const std::string& what) {
  return Status(Code::kInternal, std::string("[") + from.kind() + "] rank " + std::to_string(from.peer()) + " sent " +
                                     what + "; this is a bug, or another program writes to the connection.");
}

// The next messages of a channel, up to one of a number.
class Reader final : public Condition {
 public:
  Reader(transport::Channel* from, uint64_t number, std::span<std::byte> to)
      : from_(from), number_(number), to_(to), done_(number == 0) {}

  bool Ready() override {
    bool waits = false;
    status_ = from_->Flush();
    while (status_.ok() && !done_ && !waits) status_ = Step(&waits);
    return !status_.ok() || (done_ && !from_->keeps_any());
  }
  bool await_ready() { return Ready(); }
  void await_suspend(Task::Handle h) { SuspendOn(h, this); }
  Status await_resume() { return std::move(status_); }

 private:
  Status Step(bool* waits) {
    transport::Channel::Aside& aside = from_->aside;
    if (!aside.whole()) return Note(ReadAside(from_), waits);
    if (aside.number == number_ && !in_place_) return TakeAside();
    if (header_got_ < sizeof header_) return ReadHeader(waits);
    return ReadData(waits);
  }
  Status Note(const Result<size_t>& got, bool* waits) {
    *waits = got.ok() && *got == 0;
    return got.status();
  }

  Status TakeAside() {
    transport::Channel::Aside& aside = from_->aside;
    if (aside.bytes.size() != to_.size()) return WrongSize(aside.bytes.size());
    std::copy(aside.bytes.begin(), aside.bytes.end(), to_.begin());
    aside.bytes = {};
    aside.got = 0;
    done_ = true;
    return Status();
  }

  Status ReadHeader(bool* waits) {
    auto* const at = reinterpret_cast<std::byte*>(&header_);
    const Result<size_t> got = from_->Read({at + header_got_, sizeof header_ - header_got_});
    HVD_TRY(Note(got, waits));
    header_got_ += *got;
    if (header_got_ < sizeof header_) return Status();
    if (!IsAhead(header_)) return Unexpected(*from_, "a message of a batch where data sent ahead was expected");
    if (header_.seq == number_) {
      in_place_ = true;
      return header_.bytes == to_.size() ? Status() : WrongSize(header_.bytes);
    }
    if (header_.seq > number_)
      return Unexpected(*from_, "message " + std::to_string(header_.seq) + " before " + std::to_string(number_));
    header_got_ = 0;
    return BeginAside(header_, from_);
  }

  Status ReadData(bool* waits) {
    const Result<size_t> got = from_->Read(to_.subspan(moved_));
    HVD_TRY(Note(got, waits));
    moved_ += *got;
    done_ = moved_ == to_.size();
    return Status();
  }

  Status WrongSize(size_t bytes) const {
    return Unexpected(*from_, std::to_string(bytes) + " bytes where " + std::to_string(to_.size()) + " were expected");
  }

  transport::Channel* const from_;
  const uint64_t number_;
  const std::span<std::byte> to_;
  Fields header_;
  size_t header_got_ = 0, moved_ = 0;
  bool in_place_ = false;
  bool done_;
  Status status_;
};

}  // namespace

Status SendAhead(uint64_t number, std::span<const std::byte> data, transport::Channel* to) {
  Fields header;
  header.phase = kAheadPhase;
  header.seq = number;
  header.bytes = data.size();
  return to->WriteWhole(std::as_bytes(std::span(&header, 1)), data);
}

Task ReceiveAhead(transport::Channel* from, uint64_t number, std::span<std::byte> to) {
  Reader reader(from, number, to);
  co_return co_await reader;
}

Status BeginAside(const Fields& header, transport::Channel* from) {
  if (header.bytes == 0 || header.bytes > kMostAheadBytes || header.seq <= from->aside.number)
    return Unexpected(*from, "data ahead that cannot be (number " + std::to_string(header.seq) + ", " +
                                 std::to_string(header.bytes) + " bytes)");
  from->aside = {header.seq, std::vector<std::byte>(header.bytes), 0};
  return Status();
}

Result<size_t> ReadAside(transport::Channel* from) {
  transport::Channel::Aside& aside = from->aside;
  const Result<size_t> got = from->Read(std::span(aside.bytes).subspan(aside.got));
  if (got.ok()) aside.got += *got;
  return got;
}

}  // namespace hvd::collective::channels
