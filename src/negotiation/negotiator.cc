#include "negotiation/negotiator.h"

#include <ranges>
#include <string>
#include <utility>

namespace hvd::negotiation {
namespace {

std::string NumberText(double v) {
  std::string s = std::to_string(v);
  s.erase(s.find_last_not_of('0') + 1);
  if (!s.empty() && s.back() == '.') s.pop_back();
  return s;
}

bool ShutdownIsTooEarly(const NodeConfig& c) {
  return c.stall_shutdown_s > 0 && c.stall_shutdown_s < c.stall_warning_s;
}

StallRules RulesOf(const NodeConfig& c) {
  return {.warning_s = c.stall_warning_s, .shutdown_s = ShutdownIsTooEarly(c) ? 0 : c.stall_shutdown_s};
}

Pace PaceOf(const NodeConfig& c) {
  const FusionRules fusion{.threshold_bytes = c.fusion_threshold_bytes,
                           .groups_alone = c.disable_group_fusion,
                           .deterministic = c.deterministic};
  return {.fusion = fusion, .linger_s = c.linger_s, .max_batches_in_flight = c.max_batches_in_flight};
}

}  // namespace

// clang-format off: it would put each name on a line of its own
Node::Negotiator::Negotiator(NodeConfig c)
    : epoch(c.epoch),
      place(FindPlace(c.rank, c.size, c.parent, c.leaders)),
      sets(&place),
      versions(place.sources()),
      out(static_cast<uint32_t>(c.rank), c.epoch, &versions),
      abort(place.root(), &out, &results),
      marks(place, sets, &out, &ready, c.cache_capacity),
      joins(&place, &sets, &marks, &out),
      departures(&place, c.lost_grace_s, &out, &results, &abort),
      own_requests({.place = &place, .sets = &sets, .abort = &abort, .marks = &marks, .joins = &joins,
                    .results = &results}),
      stall({.place = &place, .sets = &sets, .marks = &marks, .joins = &joins, .departures = &departures, .out = &out,
             .results = &results, .abort = &abort},
            RulesOf(c), place.root() ? std::move(c.host_of_rank) : std::vector<std::string>()),
      log({.place = &place, .sets = &sets, .versions = &versions, .out = &out, .results = &results, .abort = &abort,
           .ready = &ready, .marks = &marks, .joins = &joins, .departures = &departures, .own_requests = &own_requests,
           .stall = &stall}),
      coordinator({.place = &place, .sets = &sets, .abort = &abort, .out = &out, .results = &results, .ready = &ready,
                   .marks = &marks, .joins = &joins, .departures = &departures, .log = &log},
                  PaceOf(c)),
      uplink({.place = &place, .sets = &sets, .versions = &versions, .abort = &abort, .marks = &marks, .joins = &joins,
              .departures = &departures, .stall = &stall, .coordinator = &coordinator, .results = &results}),
      direct({.place = &place, .sets = &sets, .marks = &marks, .out = &out, .results = &results, .stall = &stall}),
      inbox(place) {
  // clang-format on
  if (place.root() && ShutdownIsTooEarly(c)) {
    results.Warn("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (" + NumberText(c.stall_shutdown_s) +
                 ") is below HOROVOD_STALL_CHECK_TIME_SECONDS (" + NumberText(c.stall_warning_s) +
                 ") and is ignored. Lower that one too (--stall-check-warning-time-seconds).");
  }
}

namespace {

Status Refused(int from_rank, const std::string& why) {
  return {Code::kInternal, "control frame from rank " + std::to_string(from_rank) + " refused: " + why};
}

bool SaysBeside(std::span<const std::byte> frame) {
  return frame.size() > kFrameHeaderBytes && frame[1] == static_cast<std::byte>(Direction::kBeside);
}

}  // namespace

Status Node::Negotiator::Receive(int from_rank, std::span<const std::byte> frame, double now) {
  const bool from_parent = !place.root() && from_rank == place.parent;
  const Direction in_tree = from_parent ? Direction::kDown : Direction::kUp;
  Inbox::Stream* stream = inbox.Find(from_rank, SaysBeside(frame) ? Direction::kBeside : in_tree);
  if (stream == nullptr) {
    return Refused(from_rank, "it is not a neighbour of rank " + std::to_string(place.rank) + " in the tree");
  }
  FrameHeader header;
  HVD_TRY(ReadHeader(frame, {stream->way, static_cast<uint32_t>(from_rank), epoch, 0}, &header));
  if (header.number != stream->received) {
    return Refused(from_rank,
                   "it has number " + std::to_string(header.number) + ", expected " + std::to_string(stream->received));
  }
  ++stream->received;
  if (from_parent) stall.HeardParent(now);
  if (abort.over()) return {};
  const std::span<const std::byte> records = frame.subspan(kFrameHeaderBytes);
  HVD_TRY(stream->waits.empty() ? ReadAndKeepRest(stream, records, now) : Keep(stream, records));
  Finish(now);
  return {};
}

Status Node::Negotiator::Keep(Inbox::Stream* stream, std::span<const std::byte> records) {
  const Status status = inbox.Keep(stream, records);
  return status.ok() ? status : Refused(stream->from, status.message());
}

// Forgets what comes behind the end of everything.
Status Node::Negotiator::ReadAndKeepRest(Inbox::Stream* stream, std::span<const std::byte> records, double now) {
  ByteReader r(records);
  Status status = Read(*stream, &r, now);
  if (status.ok()) status = r.status("a record");
  if (!status.ok()) return Refused(stream->from, status.message());
  const size_t read = abort.over() ? records.size() : records.size() - r.left();
  if (stream->way == Direction::kDown && !place.children.empty()) out.ForwardDown(records.first(read));
  return Keep(stream, records.subspan(read));
}

Status Node::Negotiator::Read(const Inbox::Stream& stream, ByteReader* r, double now) {
  switch (stream.way) {
    case Direction::kUp:
      return uplink.Receive(stream.source, r, now);
    case Direction::kDown:
      return log.Obey(r, now);
    case Direction::kBeside:
      break;
  }
  return direct.Receive(stream.from, r, now);
}

// True: some of what waited has been read. What came beside the tree first, as it was sent first: a rank that
// has joined, or left, has sent it before.
bool Node::Negotiator::ReadWaiting(double now) {
  bool any = false;
  for (Inbox::Stream& stream : std::views::reverse(inbox.streams())) {
    if (stream.waits.empty() || abort.over()) continue;
    const std::vector<std::byte> records = inbox.TakeWaiting(&stream);
    const Status status = ReadAndKeepRest(&stream, records, now);
    if (!status.ok()) abort.Raise(status);  // as the engine does with a frame that is refused at once
    any |= stream.waits.size() < records.size();
  }
  return any;
}

void Node::Negotiator::TakeBeside(const std::function<void(int, std::span<const std::byte>)>& send) {
  if (out.has_near()) {
    const std::span<const std::byte> frame = out.NearFrame();
    for (const int child : place.near) {
      if (!departures.Left(child)) send(child, frame);
    }
    out.ClearNear();
  }
  if (out.has_beside()) {
    const std::span<const std::byte> frame = out.BesideFrame();
    for (const int leader : place.leaders) {
      if (leader != place.rank && !departures.Left(leader)) send(leader, frame);
    }
    out.ClearBeside();
  }
}

void Node::Negotiator::Finish(double now) {
  do {
    direct.Settle();
    if (place.root()) coordinator.Settle(now);
  } while (inbox.any_waits() && ReadWaiting(now));
  if (!place.root()) out.ReportVersion();
  if (place.children.empty()) out.ClearDown();
  stall.Observe(now);
}

}  // namespace hvd::negotiation
