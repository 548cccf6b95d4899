#include "negotiation/values/parameters.h"

#include <cmath>
#include <string>
#include <utility>

namespace hvd::negotiation {
namespace {

constexpr int64_t kLongestCycleMs = 3'600'000;  // more is a mistake of units

bool IsChoice(int way) { return way >= -1 && way <= 1; }

}  // namespace

Status Check(const Parameters& p) {
  const auto bad = [](const std::string& what) { return Status(Code::kInvalidArgument, "parameters: " + what); };
  if (p.fusion_threshold_bytes < 0) {
    return bad("fusion_threshold_bytes is " + std::to_string(p.fusion_threshold_bytes) +
               "; give 0 for no fusion, or a number of bytes.");
  }
  if (!std::isfinite(p.cycle_time_ms) || p.cycle_time_ms < 0 ||
      p.cycle_time_ms > static_cast<double>(kLongestCycleMs)) {
    return bad("cycle_time_ms is " + std::to_string(p.cycle_time_ms) + "; give 0 to " +
               std::to_string(kLongestCycleMs) + " milliseconds.");
  }
  for (const auto& [name, way] : {std::pair("hierarchical_allreduce", p.hierarchical_allreduce),
                                  std::pair("hierarchical_allgather", p.hierarchical_allgather),
                                  std::pair("torus_allreduce", p.torus_allreduce)}) {
    if (!IsChoice(way)) {
      return bad(std::string(name) + " is " + std::to_string(way) +
                 "; give 1 for on, 0 for off, -1 for a decision by topology.");
    }
  }
  return Status();
}

void WriteParameters(const Parameters& p, ByteWriter* w) {
  w->Varint(static_cast<uint64_t>(p.fusion_threshold_bytes));
  w->F64(p.cycle_time_ms);
  for (const int way : {p.hierarchical_allreduce, p.hierarchical_allgather, p.torus_allreduce})
    w->U8(static_cast<uint8_t>(way + 1));
}

Parameters ReadParameters(ByteReader* r) {
  Parameters p;
  p.fusion_threshold_bytes = static_cast<int64_t>(r->Varint());
  p.cycle_time_ms = r->F64();
  for (int* way : {&p.hierarchical_allreduce, &p.hierarchical_allgather, &p.torus_allreduce})
    *way = static_cast<int>(r->U8()) - 1;
  if (r->ok() && !Check(p).ok()) r->Fail();
  return p;
}

}  // namespace hvd::negotiation
