#include "negotiation/frames/inbox.h"

#include <algorithm>

namespace hvd::negotiation {

Inbox::Inbox(const Place& place) {
  // The children first, so that the hot path finds them where their sources are.
  for (const int child : place.children) {
    streams_.push_back({child, Direction::kUp, place.SourceOfNeighbour(child), 0, {}});
  }
  if (!place.root()) streams_.push_back({place.parent, Direction::kDown, 0, 0, {}});
  if (!place.direct()) return;
  if (!place.leads()) streams_.push_back({place.parent, Direction::kBeside, 0, 0, {}});
  for (const int leader : place.leaders) {
    if (place.leads() && leader != place.rank) streams_.push_back({leader, Direction::kBeside, 0, 0, {}});
  }
}

Inbox::Stream* Inbox::Find(int from, Direction way) {
  for (Stream& s : streams_) {
    if (s.from == from && s.way == way) return &s;
  }
  return nullptr;
}

bool Inbox::waits_from(int rank) const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [rank](const Stream& s) { return s.from == rank && !s.waits.empty(); });
}

Status Inbox::Keep(Stream* stream, std::span<const std::byte> records) {
  if (records.empty()) return {};
  if (stream->waits.size() + records.size() > kMostWaiting) {
    return {Code::kInternal, "more than " + std::to_string(kMostWaiting) + " bytes of it are ahead of this rank"};
  }
  waiting_ += stream->waits.empty() ? 1 : 0;
  stream->waits.insert(stream->waits.end(), records.begin(), records.end());
  return {};
}

}  // namespace hvd::negotiation
