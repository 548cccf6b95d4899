#include "negotiation/negotiator.h"

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
  const bool enabled = c.stall_check && c.stall_warning_s > 0;
  return {enabled, c.stall_warning_s, ShutdownIsTooEarly(c) ? 0 : c.stall_shutdown_s};
}

Pace PaceOf(const NodeConfig& c) {
  return {{c.fusion_threshold_bytes, c.disable_group_fusion, c.deterministic}, c.linger_s, c.max_batches_in_flight};
}

}  // namespace

Node::Negotiator::Negotiator(NodeConfig c)
    : epoch(c.epoch),
      place(FindPlace(c.rank, c.size, c.parent)),
      sets(&place),
      versions(place.sources()),
      out(static_cast<uint32_t>(c.rank), c.epoch, &versions),
      abort(place.root(), &out, &results),
      marks({&place, &sets, &out, &ready}, c.cache_capacity),
      joins(&place, &sets, &marks, &out),
      departures(&place, c.lost_grace_s, &out, &results, &abort),
      wishes({&place, &sets, &abort, &marks, &joins, &results}),
      stall({&place, &sets, &marks, &joins, &departures, &out, &results, &abort}, RulesOf(c),
            place.root() ? std::move(c.host_of_rank) : std::vector<std::string>()),
      log({&place, &sets, &versions, &out, &results, &abort, &ready, &marks, &joins, &departures, &wishes, &stall}),
      coordinator({&place, &sets, &abort, &out, &results, &ready, &marks, &joins, &departures, &log}, PaceOf(c)),
      uplink({&place, &sets, &versions, &abort, &marks, &joins, &departures, &stall, &coordinator}),
      frames_received(place.sources(), 0) {
  if (place.root() && c.stall_check && ShutdownIsTooEarly(c)) {
    results.Warn("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (" + NumberText(c.stall_shutdown_s) +
                 ") is below HOROVOD_STALL_CHECK_TIME_SECONDS (" + NumberText(c.stall_warning_s) + ") and is ignored.");
  }
}

Status Node::Negotiator::Receive(int from_rank, std::span<const std::byte> frame, double now) {
  const auto refused = [&] { return "control frame from rank " + std::to_string(from_rank) + " refused"; };
  const bool from_parent = !place.root() && from_rank == place.parent;
  const int source = from_parent ? 0 : place.SourceOfNeighbour(from_rank);
  if (source < 0) {
    const std::string self = "rank " + std::to_string(place.rank);
    return {Code::kInternal, refused() + ": it is no neighbour of " + self + " in the tree"};
  }
  FrameHeader header;
  const Direction direction = from_parent ? Direction::kDown : Direction::kUp;
  HVD_TRY(ReadHeader(frame, {direction, static_cast<uint32_t>(from_rank), epoch, 0}, &header));
  uint32_t& expected = frames_received[source];
  if (header.number != expected) {
    return {Code::kInternal,
            refused() + ": it has number " + std::to_string(header.number) + ", expected " + std::to_string(expected)};
  }
  ++expected;
  if (from_parent) stall.HeardParent(now);
  if (abort.over()) return {};
  const std::span<const std::byte> records = frame.subspan(kFrameHeaderBytes);
  ByteReader r(records);
  Status status = from_parent ? log.Obey(&r, now) : uplink.Receive(source, &r, now);
  if (status.ok()) status = r.status("a record");
  if (!status.ok()) return status.Because(refused());
  if (from_parent && !place.children.empty()) out.ForwardDown(records);
  Finish(now);
  return {};
}

void Node::Negotiator::Finish(double now) {
  if (place.root()) {
    coordinator.Settle(now);
  } else {
    out.ReportVersion();
  }
  if (place.children.empty()) out.ClearDown();
  stall.Observe(now);
}

}  // namespace hvd::negotiation
