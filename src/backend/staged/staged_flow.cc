#include "backend/staged/staged_flow.h"

#include <algorithm>

#include "backend/cuda/waiting.h"

namespace hvd::backend::staged {
namespace {

constexpr size_t kAhead = 4;  // pieces that are put on their way before they are asked for

}  // namespace

void StagedFlow::Add(const std::byte* from, std::byte* at, std::byte* to, size_t bytes,
                     std::shared_ptr<DeviceEvent> made) {
  if (made != nullptr && bytes > 0) made_.push_back({in_.total(), std::move(made)});
  in_.Add(from, at, bytes);
  out_.Add(at, to, bytes);
}

// Copies what lies between the last place and this one: one tensor by the device's copy engine, several by one launch,
// which reaches into pinned memory at the bus's rate.
Status StagedFlow::Send(const cuda::Stream& stream, const collective::shm::Ranges& ranges, size_t until, Sent* sent) {
  for (; sent->held < made_.size() && made_[sent->held].at < until; ++sent->held)
    HVD_TRY(made_[sent->held].when->HoldBack(stream.handle()));
  std::vector<cuda::Move> moves;
  ranges.ForEach(sent->bytes, until, [&moves](const std::byte* from, std::byte* to, size_t bytes, size_t) {
    if (from != nullptr && to != nullptr) moves.push_back({from, to, bytes});
  });
  sent->bytes = until;
  if (!moves.empty()) Phase(&ranges == &in_ ? "MEMCPY_IN_HOST_BUFFER" : "MEMCPY_OUT_HOST_BUFFER", stream);
  if (moves.size() > 1 && ways_.packing.Prepare().ok())
    return ways_.packing.Launch(moves, DType::kUint8, 1.0, stream.handle());
  for (const cuda::Move& move : moves) {
    const cuda::Context& context = ways_.context;
    if (&ranges == &in_) {
      HVD_TRY(cuda::CallIn(context, context.driver()->memcpy_dtoh_async, move.to, cuda::AddressOf(move.from),
                           move.bytes, stream.handle()));
    } else {
      HVD_TRY(cuda::CallIn(context, context.driver()->memcpy_htod_async, cuda::AddressOf(move.to), move.from,
                           move.bytes, stream.handle()));
    }
  }
  return Status();
}

Status StagedFlow::SendPiece() {
  HVD_TRY(Send(ways_.in, in_, std::min(total(), sent_in_.bytes + piece_), &sent_in_));
  if (sent_in_.bytes == total()) Phase("", ways_.in);
  Result<std::shared_ptr<cuda::Event>> end = ways_.in.Record();
  HVD_TRY(end.status());
  ends_.push_back(std::move(*end));
  return Status();
}

Task StagedFlow::Arrived(size_t bytes) {
  const size_t pieces = (std::min(bytes, total()) + piece_ - 1) / piece_;
  while (sent_in_.bytes < total() && ends_.size() < pieces + kAhead) HVD_CO_TRY(SendPiece());
  if (arrived_ >= pieces) co_return Status();
  arrived_ = pieces;
  co_return co_await cuda::Reached(ends_[pieces - 1]);
}

// Whole pieces, and what is left at the end.
Status StagedFlow::Left(size_t bytes) {
  const size_t until = bytes >= total() ? total() : bytes / piece_ * piece_;
  return until > sent_out_.bytes ? Send(ways_.out, out_, until, &sent_out_) : Status();
}

}  // namespace hvd::backend::staged
